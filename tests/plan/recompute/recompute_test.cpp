#include <functional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/recompute/need_order.hpp"
#include "plan/support/graph_builder.hpp"
#include "plan/support/plan_queries.hpp"
#include "plan/support/recompute_queries.hpp"
#include "plan/support/replay_check.hpp"
#include "plan/support/synthetic_profile.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::anchors;
using testing::calls;
using testing::check_replays;
using testing::checked_plan;
using ::testing::ElementsAre;
using testing::GraphBuilder;
using ::testing::IsEmpty;
using testing::kRecompute;
using testing::plan_by;

TEST(Recompute, RepeatsOneCallWhereItsInputsAreHeld) {
  GraphBuilder graph;
  const int weight = graph.outside(true);
  const int a = graph.call({.reads = {weight}});
  graph.save(a, "held");
  graph.save(graph.call({.name = "aten::silu", .reads = {a, weight}}), "recomputed");
  graph.save(graph.call({.reads = {weight}}), "held");
  const Plan plan = checked_plan(graph.profile(), kRecompute);
  ASSERT_EQ(plan.chunks[0].operators.size(), 1U);
  EXPECT_EQ(plan.chunks[0].operators[0], (RecordedOperator{1, "aten::silu"}));
  EXPECT_THAT(plan.chunks[0].need_order, ElementsAre(2, 0, 1));
  EXPECT_THAT(anchors(plan), IsEmpty());
  EXPECT_EQ(plan.chunks[0].decisions[1].reason, "rule 1 (r.toml:1)");
}

TEST(Recompute, TakesWhatWasReadFromOffloadedAndFixedBuffersToo) {
  GraphBuilder graph;
  const int a = graph.call({});
  const int b = graph.call({});
  graph.save(a, "away");
  graph.save(b, "small");
  graph.chunk().buffers[1].fixed = FixedReason::kSmall;
  graph.save(graph.call({.reads = {a, b}}), "recomputed");
  const Plan plan = checked_plan(
      graph.profile(),
      std::string(kRecompute) + "[[rule]]\nscope = [\"away\", \"small\"]\naction = \"offload\"");
  EXPECT_THAT(calls(plan), ElementsAre(2));
  EXPECT_THAT(plan.chunks[0].need_order, ElementsAre(0, 1, 2));
}

TEST(Recompute, WalksThroughOtherRecomputedBuffersAndUnsavedValues) {
  GraphBuilder graph;
  const int x = graph.outside(true);
  const int a = graph.call({.reads = {x}});     // 0, unsaved
  const int b = graph.call({.reads = {a}});     // 1, buffer 0
  const int c = graph.call({.reads = {b}});     // 2, unsaved
  const int d = graph.call({.reads = {c, b}});  // 3, buffer 1
  graph.save(b, "recomputed");
  graph.save(d, "recomputed");
  const Plan plan = checked_plan(graph.profile(), kRecompute);
  EXPECT_THAT(calls(plan), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(plan.chunks[0].need_order, ElementsAre(1, 0));
  EXPECT_THAT(anchors(plan), IsEmpty());
}

// Two buffers held, two recomputed; the second does not repeat what the first replay made.
TEST(Recompute, NeedsInputsInTheOrderOfTheCallsThatReadThemAndOnlyOnce) {
  GraphBuilder graph;
  const int a = graph.call({});
  const int b = graph.call({});
  const int c = graph.call({});
  for (const int each : {a, b, c}) graph.save(each, "held");  // buffers 0, 1, 2
  const int shared = graph.call({.reads = {c}});              // 3
  const int first = graph.call({.reads = {b, shared}});       // 4
  const int second = graph.call({.reads = {shared, a, b}});   // 5
  graph.save(first, "recomputed");                            // buffer 3
  graph.save(second, "recomputed");                           // buffer 4
  const auto order = [&](std::vector<int> unpacked) {
    return checked_plan(graph.profile(std::move(unpacked)), kRecompute).chunks[0].need_order;
  };
  EXPECT_THAT(order({4, 3, 2, 1, 0}), ElementsAre(2, 0, 1, 4, 3));
  EXPECT_THAT(order({3, 4, 3, 0}), ElementsAre(2, 1, 3, 0, 4));
  EXPECT_THAT(order({0, 3}), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(order({1, 1, 0}), ElementsAre(1, 0));
}

TEST(Recompute, CountsAnchorsOnFromTheBuffers) {
  GraphBuilder graph(2);
  const int x = graph.call({.layer = 0});
  const int y = graph.call({.layer = 1, .reads = {x}});
  graph.save(y, "recomputed", 1);
  graph.save(graph.call({.layer = 1}), "held", 1);
  const Plan plan = checked_plan(graph.profile(), kRecompute);
  EXPECT_THAT(anchors(plan), ElementsAre("0:0 enters a recomputed layer: keep"));
  EXPECT_THAT(calls(plan), ElementsAre(0, 1));
  EXPECT_THAT(plan.chunks[0].need_order, ElementsAre(1, 2, 0));
  EXPECT_THAT(plan.notes,
              ElementsAre("1 value is held as an anchor (100 B), because replays start there"));
}

TEST(Recompute, HoldsTheRightOneOfSeveralOutputs) {
  GraphBuilder graph(2);
  const int first = graph.call({.name = "aten::split", .scope = "s", .makes = {7, 8, 9}});
  graph.save(graph.call({.layer = 1, .reads = {first + 2, first + 1}}), "recomputed", 1);
  const Plan plan = checked_plan(graph.profile(), kRecompute);
  ASSERT_EQ(plan.chunks[0].anchors.size(), 2U);
  const Anchor& anchor = plan.chunks[0].anchors[1];
  EXPECT_EQ(anchor.output, 2);
  EXPECT_EQ(anchor.bytes, 9_B);
  EXPECT_EQ(anchor.name, "aten::split");
  EXPECT_EQ(anchor.scope, "s");
  // In the order in which the call reads them.
  EXPECT_THAT(plan.chunks[0].need_order, ElementsAre(2, 1, 0));
}

TEST(Recompute, RepeatsACallOnceForAllItsOutputs) {
  GraphBuilder graph;
  const int x = graph.call({.no_replay = "an exception"});
  graph.save(x, "held");
  // By its bytes alone the second output would be held: what it is made of is not smaller.
  const int out =
      graph.call({.reads = {x, graph.call({.makes = {1}, .no_replay = "no"})}, .makes = {100, 1}});
  graph.save(out, "recomputed");
  graph.save(graph.call({.reads = {out + 1}}), "recomputed");
  const Plan plan = checked_plan(graph.profile(), kRecompute);
  EXPECT_THAT(anchors(plan), ElementsAre("1:0 aten::make is not repeated: no: keep"));
  EXPECT_THAT(calls(plan), ElementsAre(1, 2, 3));
}

// A mean, then eps added in place: the buffer holds the second version, the first is gone.
TEST(Recompute, RepeatsInPlaceCallsAfterWhatMadeTheEarlierVersion) {
  GraphBuilder graph;
  const int x = graph.call({});
  graph.save(x, "held");
  const int mean = graph.call({.name = "aten::mean", .reads = {x}});
  const int shifted = graph.call({.name = "aten::add_", .reads = {mean}});
  graph.save(shifted, "recomputed");
  const int scaled = graph.call({.name = "aten::mul_", .reads = {shifted, x}});
  graph.save(graph.call({.reads = {scaled}}), "recomputed");
  const Plan plan = checked_plan(graph.profile(), kRecompute);
  EXPECT_THAT(calls(plan), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(plan.chunks[0].need_order, ElementsAre(0, 2, 1));
}

struct UnsavedCase {
  const char* what;
  const char* rules;
  double link;
  GraphBuilder::Call made;  // What is read and not saved, by a call of layer 1 in "part".
  std::vector<std::string> anchors;
  std::uint64_t recomputed = 101;  // Bytes made of it; it has 100 itself.
};

// x (persistent) -> made (unsaved) -> recomputed. Where `made` cannot be repeated or is not worth
// it, it is held.
TEST(Recompute, HoldsOrRepeatsWhatIsNotSaved) {
  const std::string recompute = kRecompute;
  const GraphBuilder::Call inside{.scope = "part", .layer = 1};
  const auto with = [&](auto change) {
    GraphBuilder::Call call = inside;
    change(call);
    return call;
  };
  const auto slow = with([](auto& call) { call.ns = 101; });
  const auto forbidden = with([](auto& call) { call.no_replay = "it asks the clock"; });
  const auto before = with([](auto& call) { call.layer = 0; });
  const auto nowhere = with([](auto& call) { call.layer = -1; });
  const char* const keep_part = "[[rule]]\nmade_in = \"part\"\naction = \"keep\"\n";
  const char* const offload_part = "[[rule]]\nproducer = \"aten::m*\"\naction = \"offload\"\n";
  for (const UnsavedCase& each : {
           UnsavedCase{"cheap, of what is there", "", 1e9, inside, {}},
           {"takes 101 ns, 100 B take 100 ns",
            "",
            1e9,
            slow,
            {"0:0 takes longer to make than to fetch: keep"}},
           {"slow, but nothing larger is made of it", "", 1e9, slow, {}, 100},
           {"as long as fetching it", "", 1e9, with([](auto& call) { call.ns = 100; }), {}},
           {"a link of unknown speed", "", 0, slow, {}},
           {"slow, but a rule wants it recomputed",
            "[[rule]]\nmade_in = \"part\"\naction = \"recompute\"\n",
            1e9,
            slow,
            {}},
           {"slow, the rule's scope stands for where it was made",
            "[[rule]]\nscope = \"part\"\nlayers = 1\naction = \"recompute\"\n",
            1e9,
            slow,
            {}},
           {"slow, and the rule is for another layer",
            "[[rule]]\nscope = \"part\"\nlayers = 0\naction = \"recompute\"\n",
            1e9,
            slow,
            {"0:0 takes longer to make than to fetch: keep"}},
           {"slow, and the rule asks for a saver",
            "[[rule]]\nsaved_by = \"*\"\naction = \"recompute\"\n",
            1e9,
            slow,
            {"0:0 takes longer to make than to fetch: keep"}},
           {"slow, and the rule asks for elements",
            "[[rule]]\nmin_elements = 0\nscope = \"part\"\naction = \"recompute\"\n",
            1e9,
            slow,
            {"0:0 takes longer to make than to fetch: keep"}},
           {"slow, and too large for the rule",
            "[[rule]]\nmax_size = 99\naction = \"recompute\"\n",
            1e9,
            slow,
            {"0:0 takes longer to make than to fetch: keep"}},
           {"named by a rule that keeps", keep_part, 1e9, inside, {"0:0 rule 2 (r.toml:4)"}},
           {"named by a rule that offloads", offload_part, 1e9, inside, {"0:0 rule 2 (r.toml:4)"}},
           {"a rule about savers names nobody",
            "[[rule]]\nscope = \"part\"\naction = \"keep\"\n",
            1e9,
            inside,
            {}},
           {"not to be repeated",
            "",
            1e9,
            forbidden,
            {"0:0 aten::make is not repeated: it asks the clock: keep"}},
           {"not to be repeated, whatever a rule wants",
            "[[rule]]\nmade_in = \"part\"\naction = \"recompute\"\n",
            1e9,
            forbidden,
            {"0:0 aten::make is not repeated: it asks the clock: keep"}},
           {"from another layer", "", 1e9, before, {"0:0 enters a recomputed layer: keep"}},
           {"from another layer, whatever a rule wants",
            "[[rule]]\naction = \"recompute\"\n",
            1e9,
            before,
            {"0:0 enters a recomputed layer: keep"}},
           {"from another layer of the same group",
            "[[rule]]\ngroup_inputs = 2\naction = \"keep\"\n",
            1e9,
            before,
            {}},
           {"from before the layers",
            "[[rule]]\ngroup_inputs = 2\naction = \"offload\"\n",
            1e9,
            nowhere,
            {"0:0 enters a recomputed layer; rule 2 (r.toml:4)"}},
           {"from another group",
            "[[rule]]\ngroup_inputs = 1\naction = \"offload\"\n",
            1e9,
            before,
            {"0:0 enters a recomputed layer; rule 2 (r.toml:4)"}},
       }) {
    GraphBuilder graph(2, each.link);
    GraphBuilder::Call made = each.made;
    made.reads = {graph.outside(true)};
    const int value = graph.call(made);
    graph.save(graph.call({.layer = 1, .reads = {value}, .makes = {each.recomputed}}), "recomputed",
               1);
    const Plan plan = checked_plan(graph.profile(), recompute + each.rules);
    EXPECT_EQ(anchors(plan), each.anchors) << each.what;
    EXPECT_THAT(calls(plan), ElementsAre(0, 1)) << each.what;
  }
}

TEST(Recompute, HoldsWhatIsSmallOnTheDevice) {
  GraphBuilder graph(2);
  const int value = graph.call({.layer = 0, .makes = {50}});
  graph.save(graph.call({.layer = 1, .reads = {value}}), "recomputed", 1);
  const auto action = [&](const std::string& limits) {
    const Plan plan =
        checked_plan(graph.profile(), kRecompute + ("[[rule]]\naction = \"offload\"\n" + limits));
    return to_string(plan.chunks[0].anchors.at(0).action);
  };
  EXPECT_EQ(action(""), "offload");
  EXPECT_EQ(action("[limits]\nmin_size = 51"), "keep");
  EXPECT_EQ(action("[limits]\nmin_size = 50"), "offload");
}

TEST(Recompute, DecidesAnchorsByTheRuleForTheInputs) {
  GraphBuilder graph(2);
  const int value = graph.call({.layer = 0});
  graph.save(graph.call({.layer = 1, .reads = {value}}), "recomputed", 1);
  const Plan plan = checked_plan(
      graph.profile(),
      "[[rule]]\nlayers = \"0..1\"\ngroup_inputs = 1\naction = \"offload\"\nshard = true\n" +
          std::string(kRecompute));
  ASSERT_EQ(plan.chunks[0].anchors.size(), 1U);
  EXPECT_EQ(plan.chunks[0].anchors[0].action, (Action{ActionKind::kOffload, true}));
}

// Its own layer reads it, too, and before the other one does.
TEST(Recompute, DecidesAnchorsByTheLayerTheyEnter) {
  GraphBuilder graph(2);
  const int value = graph.call({.scope = "part", .layer = 0});
  graph.save(graph.call({.layer = 0, .reads = {value}}), "recomputed", 0);
  graph.save(graph.call({.layer = 1, .reads = {value}}), "recomputed", 1);
  const Plan plan = checked_plan(graph.profile(),
                                 "[[rule]]\ngroup_inputs = 1\naction = \"offload\"\n"
                                 "[[rule]]\nmade_in = \"part\"\naction = \"keep\"\n" +
                                     std::string(kRecompute));
  EXPECT_THAT(anchors(plan), ElementsAre("0:0 enters a recomputed layer; rule 1 (r.toml:1)"));
  EXPECT_EQ(plan.chunks[0].anchors[0].action.kind, ActionKind::kOffload);
}

TEST(Recompute, CountsOnceWhatACallReadsTwice) {
  GraphBuilder graph(0, 1e9);
  const int slow = graph.call({.ns = 1000});
  graph.save(graph.call({.reads = {slow, slow}, .makes = {60}}), "recomputed");
  EXPECT_THAT(anchors(checked_plan(graph.profile(), kRecompute)), IsEmpty());
}

struct BytesCase {
  std::uint64_t left;
  std::uint64_t right;
  std::vector<int> held;  // Calls 0 and 1 make left and right, call 2 makes 100 bytes of both.
};

TEST(Recompute, HoldsTheFewerBytes) {
  for (const BytesCase& each : {BytesCase{60, 60, {2}},
                                {50, 50, {2}},
                                {49, 50, {0, 1}},
                                {99, 0, {0, 1}},
                                {100, 0, {2}},
                                {1, 1, {0, 1}}}) {
    GraphBuilder graph;
    const int left = graph.call({.makes = {each.left}, .no_replay = "no"});
    const int right = graph.call({.makes = {each.right}, .no_replay = "no"});
    const int sum = graph.call({.reads = {left, right, left}});
    graph.save(graph.call({.reads = {sum}}), "recomputed");
    const Plan plan = checked_plan(graph.profile(), kRecompute);
    std::vector<int> held;
    for (const Anchor& anchor : plan.chunks[0].anchors) held.push_back(anchor.call);
    EXPECT_EQ(held, each.held) << each.left << " + " << each.right;
  }
}

// What a rule wants repeated costs all that it is made of, even if that is more than itself.
TEST(Recompute, WeighsWhatRulesWantRepeatedByItsInputs) {
  GraphBuilder graph;
  const int wide = graph.call({.makes = {120}, .no_replay = "no"});
  const int narrow = graph.call({.scope = "covered", .reads = {wide}, .makes = {50}});
  const int held = graph.call({.reads = {narrow}, .makes = {100}});
  graph.save(graph.call({.reads = {held}}), "recomputed");
  const Plan plan = checked_plan(
      graph.profile(),
      kRecompute + std::string("[[rule]]\nmade_in = \"covered\"\naction = \"recompute\""));
  EXPECT_THAT(anchors(plan), ElementsAre("2:0 not larger than what it is made of: keep"));
}

TEST(Recompute, AddsBytesWithoutOverflow) {
  constexpr std::uint64_t kHalf = 1ULL << 63U;
  GraphBuilder graph;
  const int left = graph.call({.makes = {kHalf}, .no_replay = "no"});
  const int right = graph.call({.makes = {kHalf}, .no_replay = "no"});
  graph.save(graph.call({.reads = {graph.call({.reads = {left, right}})}}), "recomputed");
  EXPECT_THAT(anchors(checked_plan(graph.profile(), kRecompute)),
              ElementsAre("2:0 not larger than what it is made of: keep"));
}

// The fewest bytes of a chain are somewhere in its middle.
TEST(Recompute, HoldsTheNarrowestOfAChain) {
  GraphBuilder graph;
  int value = graph.call({.makes = {900}, .no_replay = "no"});
  for (const std::uint64_t bytes : {800U, 70U, 60U, 60U, 500U}) {
    value = graph.call({.reads = {value}, .makes = {bytes}});
  }
  graph.save(graph.call({.reads = {value}}), "recomputed");
  const Plan plan = checked_plan(graph.profile(), kRecompute);
  EXPECT_THAT(anchors(plan), ElementsAre("4:0 not larger than what it is made of: keep"));
  EXPECT_THAT(calls(plan), ElementsAre(4, 5, 6));
}

struct Impossible {
  const char* why;
  std::function<void(ChunkProfile&)> change;  // Call 0 makes buffer 0 of x, from outside.
};

TEST(Recompute, TakesTheFallbackWhereItIsNotPossible) {
  for (const Impossible& each : {
           Impossible{"it was written from outside",
                      [](ChunkProfile& chunk) {
                        chunk.buffers[0].recipe = {false, "it was written from outside"};
                      }},
           {"no recipe", [](ChunkProfile& chunk) { chunk.buffers[0].recipe.usable = false; }},
           {"the operator that made it is unknown",
            [](ChunkProfile& chunk) {
              chunk.buffers[0].value = -1;
              chunk.values[1].buffer = -1;
            }},
           {"it came from outside of the pass",
            [](ChunkProfile& chunk) {
              chunk.values[1].call = -1;
              chunk.operators[0].makes.clear();
            }},
           {"aten::silu is not repeated: a collective",
            [](ChunkProfile& chunk) { chunk.operators[0].no_replay = kCollective; }},
           {"aten::silu reads what came from outside and is gone",
            [](ChunkProfile& chunk) { chunk.values[0].persistent = false; }},
       }) {
    GraphBuilder graph;
    const int x = graph.outside(true);
    graph.save(graph.call({.name = "aten::silu", .reads = {x}}), "recomputed");
    EXPECT_THAT(calls(checked_plan(graph.profile(), kRecompute)), ElementsAre(0));
    each.change(graph.chunk());
    const Plan kept = checked_plan(graph.profile(), kRecompute);
    const Decision& decision = kept.chunks[0].decisions[0];
    EXPECT_EQ(decision.action, Action{});
    EXPECT_EQ(decision.reason,
              "rule 1 (r.toml:1), but not recomputable: " + std::string(each.why) + ": keep");
    EXPECT_THAT(calls(kept), IsEmpty());
    const Plan offloaded =
        checked_plan(graph.profile(), kRecompute + std::string("fallback = \"offload\""));
    EXPECT_EQ(offloaded.chunks[0].decisions[0].action, (Action{ActionKind::kOffload, false}));
    EXPECT_EQ(offloaded.chunks[0].decisions[0].fallback, ActionKind::kKeep);
    EXPECT_THAT(offloaded.chunks[0].decisions[0].reason, ::testing::EndsWith(": offload"));
  }
}

TEST(Recompute, IsNeverAFallback) {
  Rules rules = parse_rules("[[rule]]\naction = \"offload\"", "r.toml");
  rules.rules[0].fallback = ActionKind::kRecompute;
  const Plan plan = make_plan(testing::baseline_profile({100}), rules);
  EXPECT_EQ(plan.chunks[0].decisions[0].fallback, ActionKind::kKeep);
}

TEST(Recompute, StartsFromWhatCouldNotBeRecomputed) {
  GraphBuilder graph;
  const int x = graph.outside(false);
  const int a = graph.call({.reads = {x}});
  graph.save(a, "recomputed");
  graph.save(graph.call({.reads = {a}}), "recomputed");
  const Plan plan = checked_plan(graph.profile(), kRecompute);
  EXPECT_EQ(plan.chunks[0].decisions[0].action.kind, ActionKind::kKeep);
  EXPECT_EQ(plan.chunks[0].decisions[1].action.kind, ActionKind::kRecompute);
  EXPECT_THAT(calls(plan), ElementsAre(1));
  EXPECT_THAT(plan.chunks[0].need_order, ElementsAre(0, 1));
}

TEST(Recompute, StartsFromWhatCameFromOutsideIfItWasSaved) {
  GraphBuilder graph;
  const int x = graph.outside(false);
  graph.save(x, "held");
  graph.save(graph.call({.reads = {x}}), "recomputed");
  const Plan plan = checked_plan(graph.profile(), kRecompute);
  EXPECT_THAT(calls(plan), ElementsAre(0));
  EXPECT_THAT(plan.chunks[0].need_order, ElementsAre(0, 1));
}

TEST(Recompute, RepeatsCollectivesOnlyWhereRulesAllowIt) {
  GraphBuilder graph;
  const int x = graph.outside(true);
  const auto reduce = [&] {
    return graph.call({.name = "c10d::all_reduce", .reads = {x}, .no_replay = "a collective"});
  };
  graph.save(reduce(), "recomputed");
  graph.chunk().buffers[0].recipe = {false, "a collective"};
  graph.save(graph.call({.reads = {reduce()}}), "recomputed");
  const Plan held = checked_plan(graph.profile(), kRecompute);
  EXPECT_FALSE(held.recompute_collectives);
  EXPECT_EQ(held.chunks[0].decisions[0].action.kind, ActionKind::kKeep);
  EXPECT_THAT(anchors(held),
              ElementsAre("1:0 c10d::all_reduce is not repeated: a collective: keep"));
  const Plan repeated = checked_plan(
      graph.profile(), kRecompute + std::string("[limits]\nrecompute_collectives = true"));
  EXPECT_TRUE(repeated.recompute_collectives);
  EXPECT_EQ(repeated.chunks[0].decisions[0].action.kind, ActionKind::kRecompute);
  EXPECT_THAT(anchors(repeated), IsEmpty());
  EXPECT_THAT(calls(repeated), ElementsAre(0, 1, 2));
  // Nothing else is lifted.
  graph.chunk().operators[0].no_replay = "a side effect";
  const Plan other = checked_plan(
      graph.profile(), kRecompute + std::string("[limits]\nrecompute_collectives = true"));
  EXPECT_EQ(other.chunks[0].decisions[0].action.kind, ActionKind::kKeep);
}

TEST(Recompute, ComparesWhatRanksRepeatByOneNumber) {
  const auto plan_with = [](bool log, const char* limits) {
    GraphBuilder graph;
    const int x = graph.outside(true);
    const int logged = log ? graph.call({.name = "aten::norm", .reads = {x}}) : x;
    const int sum =
        graph.call({.name = "c10d::all_reduce", .reads = {x}, .no_replay = "a collective"});
    graph.save(graph.call({.reads = {sum}}), "recomputed");
    if (log) graph.save(logged, "kept");
    return checked_plan(graph.profile(), kRecompute + std::string(limits));
  };
  constexpr const char* kRepeated = "[limits]\nrecompute_collectives = true";
  const Plan plan = plan_with(false, kRepeated);
  EXPECT_NE(replay_digest(plan), 0U);
  EXPECT_EQ(replay_digest(plan_with(false, "")), 0U);
  // What one rank does beside does not count.
  EXPECT_EQ(replay_digest(plan_with(true, kRepeated)), replay_digest(plan));
  Plan demoted = plan;
  demoted.chunks[0].decisions[0].action = {};
  EXPECT_NE(replay_digest(demoted), replay_digest(plan));
}

// What ends a layer may save its own result; it still enters the next one from outside.
TEST(Recompute, KeepsWhatEntersAGroupWhereverItWasSavedFirst) {
  GraphBuilder graph(2);
  const int x = graph.outside(true);
  const int tanh = graph.call({.name = "aten::tanh", .layer = 0, .reads = {x}});
  graph.save(tanh, "end", 0);
  const int exp = graph.call({.name = "aten::exp", .layer = 1, .reads = {tanh}});
  graph.save(exp, "end", 1);
  const auto plan = [&](const std::string& interval) {
    return checked_plan(graph.profile(), "[paddle]\nrecompute_interval = " + interval);
  };
  EXPECT_EQ(plan("1").chunks[0].decisions[0].action.kind, ActionKind::kKeep);
  EXPECT_EQ(plan("1").chunks[0].decisions[1].action.kind, ActionKind::kRecompute);
  EXPECT_THAT(calls(plan("1")), ElementsAre(1));
  EXPECT_THAT(calls(plan("2")), ElementsAre(0, 1));
}

}  // namespace
}  // namespace spillway
