#include <algorithm>

#include <gtest/gtest.h>

#include "plan/support/synthetic_profile.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/rules.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using testing::error_text;

Plan small_plan() {
  Plan plan;
  plan.structure = "0123456789abcdef";
  plan.limits = {Bytes(64), Bytes(1), std::nullopt, Bytes(0), 0.25, Bytes(7)};
  plan.predicted_step_ns = 370'000'000;
  plan.predicted_peak = Bytes(1ULL << 33U);
  plan.budget = Bytes(1ULL << 34U);
  plan.base_step_ns = 360'000'000;
  plan.bound_step_ns = 365'000'000;
  plan.notes = {"a note"};
  Decision keep{0,  {"layers.0", "aten::mm", 0}, Bytes(10),
                {}, ActionKind::kKeep,           "nothing matched: keep"};
  Decision offload{1,
                   {"layers.0", "aten::mm", 1},
                   Bytes(20),
                   {ActionKind::kOffload, true},
                   ActionKind::kKeep,
                   "rule 1 (r.toml:3)"};
  Decision recompute{2,
                     {"layers.1", "aten::mul", 0},
                     Bytes(30),
                     {ActionKind::kRecompute, false},
                     ActionKind::kOffload,
                     "rule 2 (r.toml:7)"};
  plan.recompute_collectives = true;
  plan.cap = Bytes(11);
  ChunkPlan& chunk = plan.chunks.emplace_back();
  chunk.decisions = {keep, offload, recompute};
  chunk.sites = {{{"BFloat16", 3}, {"Float", 2}}, {0, 1, 0}, {0, 1, 1}, {7, 8, 0xfedcba9876543210}};
  chunk.calls_before_first_save = 3;
  Anchor& anchor = chunk.anchors.emplace_back();
  anchor.call = 5;
  anchor.output = 1;
  anchor.name = "aten::add";
  anchor.scope = "layers.0";
  anchor.bytes = Bytes(40);
  anchor.action.kind = ActionKind::kOffload;
  anchor.reason = "enters a recomputed layer";
  anchor.saves = 2;
  anchor.ordinal = -1;
  chunk.operators = {{5, "aten::add"}, {7, "aten::mul"}};
  chunk.need_order = {1, 3, 2, 0};
  chunk.residency.unpack_order = {2, 1};
  chunk.residency.add(
      {.pending = {50, 60, 70}, .reloads = {80, 90}, .own_reloads = 2, .held = {1, 3}});
  chunk.residency.add({.pending = {51, 61, 71}, .reloads = {81, 91}, .own_reloads = 2, .held = {}});
  chunk.residency.add(chunk.residency.lists[0]);
  return plan;
}

TEST(PlanJson, GivesBackEveryField) {
  const Plan plan = small_plan();
  EXPECT_EQ(plan_from_json(to_json(plan), "plan.json"), plan);
  EXPECT_EQ(plan_from_json(to_json(Plan{}), "plan.json"), Plan{});
}

TEST(PlanJson, GivesBackThePlansOfRandomProfiles) {
  const Rules rules = parse_rules(
      "[[rule]]\nsaved_by = \"*aten*\"\nfraction = 0.5\naction = \"offload\"\nfallback = "
      "\"keep\"\n"
      "[[rule]]\nlayers = \"0..1\"\naction = \"recompute\"\n[limits]\nhost = \"1 MiB\"",
      "r.toml");
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const Plan plan = make_plan(testing::random_profile(random), rules);
    ASSERT_EQ(plan_from_json(to_json(plan), "plan.json"), plan) << "seed " << seed;
  }
}

TEST(PlanJson, WritesThousandsOfSitesInAFewLines) {
  Plan plan = small_plan();
  SiteTable& sites = plan.chunks[0].sites;
  plan.chunks[0].residency = {};
  const std::string few = to_json(plan);
  for (int i = 0; i < 3000; ++i) {
    sites.kind.push_back(i % 2);
    sites.buffer.push_back(i % 2);
    sites.signature.push_back(static_cast<std::uint64_t>(i));
  }
  const std::string many = to_json(plan);
  EXPECT_EQ(plan_from_json(many, "plan.json"), plan);
  EXPECT_LT(std::count(many.begin(), many.end(), '\n'), 280);
  EXPECT_LT(many.size() - few.size(), 3000 * (2 * 2 + 19) + 1500U);
}

/// Its limits in bytes become a cap; lists are made where there is a profile.
TEST(PlanJson, ReadsTheLastSchema) {
  Plan plan = small_plan();
  plan.chunks[0].residency = {};
  plan.cap.reset();
  std::string text = to_json(plan);
  const auto replace = [&text](const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from << " in " << text;
    text.replace(at, from.size(), to);
  };
  replace("spillway.plan/6", "spillway.plan/5");
  replace("\"budget\"", "\"max_pending_release\": 11,\n  \"max_prefetch\": 12,\n  \"budget\"");
  const std::size_t at = text.find("\"residency\"");
  ASSERT_NE(at, std::string::npos) << text;
  const std::size_t end = text.find('}', at);
  text.replace(at, end + 1 - at, "\"forward_allowance\":[50,60,70],\"backward_allowance\":[80,65]");
  plan.cap = Bytes(50);
  EXPECT_EQ(plan_from_json(text, "plan.json"), plan);
}

struct WrongPlan {
  const char* what;
  const char* by;
  const char* text;
};

TEST(PlanJson, SaysWhereWhatWasWantedAndWhatWasFound) {
  const std::string good = to_json(small_plan());
  for (const WrongPlan& each :
       {WrongPlan{"spillway.plan/6", "spillway.profile/1",
                  "schema: \"spillway.plan/6\" wanted, found the text \"spillway.profile/1\""},
        {"spillway.plan/6", "spillway.plan/1",
         "schema: \"spillway.plan/6\" wanted, found \"spillway.plan/1\": another version of "
         "Spillway wrote it; create it with this version"},
        {"\"kind\":[0,1,0]", "\"kind\":[0,2,0]",
         "chunks[0].sites.kind[1]: there is no kind 2; this chunk has 2"},
        {"\"buffer\":[0,1,1]", "\"buffer\":[0,1,-1]",
         "chunks[0].sites.buffer[2]: there is no buffer -1; this chunk has 3"},
        {"\"buffer\":[0,1,1]", "\"buffer\":[0,1]",
         "chunks[0].sites.buffer: as many as in kind wanted: 3, found 2"},
        {"\"dtype\":\"Float\",", "", "chunks[0].sites.kinds[1].dtype: missing"},
        {",\"fedcba9876543210\"]", "]",
         "chunks[0].sites.signature: as many as in kind wanted: 3, found 2"},
        {"\"fedcba9876543210\"", "\"fedcba987654321\"",
         "chunks[0].sites.signature[2]: a digest of 16 digits wanted, found the text "
         "\"fedcba987654321\""},
        {"\"fedcba9876543210\"", "12",
         "chunks[0].sites.signature[2]: a digest of 16 digits wanted, found the number 12"},
        {"\"kind\":\"keep\"", "\"kind\":\"kep\"",
         "chunks[0].decisions[0].action.kind: unknown word \"kep\"; did you mean \"keep\"?"},
        {"\"fallback\":\"offload\"", "\"fallback\":true",
         "chunks[0].decisions[2].fallback: a text wanted, found true"},
        {"\"fallback\":\"offload\"", "\"fallback\":\"recompute\"",
         "chunks[0].decisions[2].fallback: keep or offload wanted, found recompute"},
        {"\"buffer\":1,", "\"buffer\":0,",
         "chunks[0].decisions[1].buffer: 1, its index in the list, wanted, found 0"},
        {"[1,3,2,0]", "[1,4]",
         "chunks[0].need_order[1]: there is no buffer or anchor 4; this chunk has 4"},
        {"\"call\":7,", "\"call\":5,", "chunks[0].operators[1].call: more than 5 wanted, found 5"},
        {"\"call\":5,\"output\"", "\"call\":7,\"output\"",
         "chunks[0].anchors[0].call: operators have no call 7 of aten::add"},
        {"\"output\":1", "\"output\":-1",
         "chunks[0].anchors[0].output: at least 0 wanted, found -1"},
        {"\"kind\":\"offload\",\"shard\":false", "\"kind\":\"recompute\",\"shard\":false",
         "chunks[0].anchors[0].action: an anchor is kept or offloaded, not recomputed"},
        {"\"recompute_collectives\": true,", "", "recompute_collectives: missing"},
        {"[50,60,70]", "[50,60]",
         "chunks[0].residency.lists[0].pending: one for each site wanted: 3, found 2"},
        {"[81,91]", "[81]",
         "chunks[0].residency.lists[1].reloads: one for each unpack wanted: 2, found 1"},
        {"[80,90]", "[80,-90]",
         "chunks[0].residency.lists[0].reloads[1]: there is no number -90; this chunk has "
         "2147483647"},
        {"\"list_of_pass\":[0,1,0]", "\"list_of_pass\":[0,2]",
         "chunks[0].residency.list_of_pass[1]: there is no list 2; this chunk has 2"},
        {"\"held\":[1,3]", "\"held\":[3,1]",
         "chunks[0].residency.lists[0].held: ascending numbers wanted"},
        {"\"held\":[1,3]", "\"held\":[1,4]",
         "chunks[0].residency.lists[0].held[1]: there is no buffer or anchor 4; this chunk has 4"},
        {"\"kind\":\"offload\"", "\"kind\":\"recompute\"",
         "chunks[0].decisions[1].action: what is recomputed cannot be sharded"},
        {"[50,60,70]", "[50,60,4611686018427387904]",
         "chunks[0].residency.lists[0].pending[2]: a whole number from -9007199254740992 to "
         "9007199254740992 wanted, found the number 4611686018427387904"},
        {"\"cap\": 11", "\"cap\": 4611686018427387904",
         "cap: a number of bytes up to 281474976710656 wanted, found the number "
         "4611686018427387904"},
        {"\"tier\":\"\"", "\"tier\":\"file\"",
         "chunks[0].decisions[0].action.tier: \"\" or \"host\" wanted, found the text \"file\": "
         "there is no other tier yet"},
        {"\"host\":64", "\"hots\":64", "limits.hots: unknown field; did you mean \"host\"?"}}) {
    std::string text = good;
    const std::size_t at = text.find(each.what);
    ASSERT_NE(at, std::string_view::npos) << each.what << " in " << text;
    text.replace(at, std::string_view(each.what).size(), each.by);
    EXPECT_EQ(error_text<ConfigError>([&] { (void)plan_from_json(text, "plan.json"); }),
              std::string("[plan] plan.json: ") + each.text);
  }
}

TEST(ActionText, SaysWhetherItIsSharded) {
  EXPECT_EQ(to_string(Action{}), "keep");
  EXPECT_EQ(to_string(Action{ActionKind::kOffload, false}), "offload");
  EXPECT_EQ(to_string(Action{ActionKind::kOffload, true}), "offload, sharded");
  EXPECT_EQ(action_kind("recompute"), ActionKind::kRecompute);
  EXPECT_EQ(action_kind("Keep"), std::nullopt);
}

}  // namespace
}  // namespace spillway
