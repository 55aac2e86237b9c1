#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/plan_queries.hpp"
#include "plan/support/synthetic_profile.hpp"
#include "spillway/core/error.hpp"

namespace spillway {
namespace {

using testing::kFlash;
using namespace spillway::literals;
using testing::action_at;
using testing::baseline_profile;
using testing::bytes_of;
using testing::decision_at;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::layers_with;
using testing::Naming;
using testing::plan_by;
using testing::transformer_profile;

/// Ids of buffers that are offloaded.
std::vector<int> offloaded(const Plan& plan) {
  std::vector<int> ids;
  for (const Decision& decision : plan.chunks.at(0).decisions) {
    if (decision.action.kind == ActionKind::kOffload) ids.push_back(decision.buffer);
  }
  return ids;
}

TEST(PlanByRules, DecidesEveryBufferOnceInOrder) {
  const Profile profile = transformer_profile({.layers = 2});
  const Plan plan = plan_by(profile, "[[rule]]\naction = \"offload\"");
  ASSERT_EQ(plan.chunks.size(), 1U);
  ASSERT_EQ(plan.chunks[0].decisions.size(), profile.chunks[0].buffers.size());
  for (const BufferProfile& buffer : profile.chunks[0].buffers) {
    const Decision& decision = plan.chunks[0].decisions[static_cast<std::size_t>(buffer.id)];
    EXPECT_EQ(decision.buffer, buffer.id);
    EXPECT_EQ(decision.position, buffer.position);
    EXPECT_EQ(decision.bytes, buffer.size);
  }
  EXPECT_EQ(plan.structure, structure_digest(profile));
  std::vector<int> first_needs;
  for (const int id : profile.chunks[0].unpack_order) {
    const bool known = std::find(first_needs.begin(), first_needs.end(), id) != first_needs.end();
    if (!known) first_needs.push_back(id);
  }
  EXPECT_EQ(plan.chunks[0].need_order, first_needs);
  EXPECT_THAT(plan.chunks[0].anchors, IsEmpty());
  EXPECT_THAT(plan.chunks[0].operators, IsEmpty());
  const SiteTable& sites = plan.chunks[0].sites;
  ASSERT_EQ(sites.kind.size(), profile.chunks[0].sites.size());
  for (std::size_t i = 0; i < sites.kind.size(); ++i) {
    const SiteProfile& site = profile.chunks[0].sites[i];
    const SiteKind& kind = sites.kinds[static_cast<std::size_t>(sites.kind[i])];
    EXPECT_EQ(kind, (SiteKind{site.dtype, static_cast<int>(site.sizes.size())}));
    EXPECT_EQ(sites.buffer[i], site.buffer);
  }
  EXPECT_LT(sites.kinds.size(), 6U);
}

TEST(PlanByRules, KeepsWhatNothingMatchesAndWhatIsFixed) {
  const Profile profile = transformer_profile({.layers = 1});
  const Plan nothing = plan_by(profile, "");
  EXPECT_EQ(decision_at(nothing, "layers.0.mlp.act", "aten::silu").reason, "nothing matched: keep");
  const Plan all = plan_by(profile, "[[rule]]\naction = \"offload\"");
  EXPECT_EQ(decision_at(all, "layers.0.mlp.act", "aten::silu").reason, "rule 1 (r.toml:1)");
  // A linear layer saves its input, then its weight.
  const Decision& weight = decision_at(all, "layers.0.attention.qkv", "aten::mm", 1);
  EXPECT_EQ(weight.action, Action{});
  EXPECT_EQ(weight.reason, "fixed: parameter");
  EXPECT_EQ(decision_at(all, "layers.0.attention.norm", "aten::_fused_rms_norm", 1).reason,
            "fixed: small");
}

TEST(PlanByRules, LetsTheFirstRuleThatMatchesDecide) {
  const Plan plan = plan_by(transformer_profile({.layers = 1}), R"(
[[rule]]
scope = "*.mlp.act"
action = "recompute"
fallback = "offload"
[[rule]]
name = "the rest of the MLP"
scope = "*.mlp"
action = "offload")");
  EXPECT_EQ(action_at(plan, "layers.0.mlp.act", "aten::mul", 1), "recompute");
  EXPECT_EQ(decision_at(plan, "layers.0.mlp.act", "aten::mul").fallback, ActionKind::kOffload);
  EXPECT_EQ(decision_at(plan, "layers.0.mlp.fc2", "aten::mm").reason,
            "rule 2 \"the rest of the MLP\" (r.toml:6)");
  EXPECT_EQ(action_at(plan, "layers.0.attention.core", kFlash), "keep");
}

TEST(PlanByRules, AsksEverySaveOfABufferNotOnlyTheFirst) {
  // Attention's output is saved by attention first and by the projection after it.
  const Profile profile = transformer_profile({.layers = 1});
  const Plan plan =
      plan_by(profile, "[[rule]]\nscope = \"*.attention.proj\"\naction = \"offload\"");
  EXPECT_EQ(action_at(plan, "layers.0.attention.core", kFlash, 3), "offload");
  EXPECT_EQ(action_at(plan, "layers.0.attention.core", kFlash, 0), "keep");
  // One save must fit both: mm saved it in proj, not in core.
  const Plan both = plan_by(
      profile, "[[rule]]\nscope = \"*.core\"\nsaved_by = \"aten::mm\"\naction = \"offload\"");
  EXPECT_THAT(offloaded(both), IsEmpty());
}

TEST(PlanByRules, MatchesByProducerAndWhereItRan) {
  const Profile profile = transformer_profile({.layers = 2});
  const Plan by_name =
      plan_by(profile, "[[rule]]\nproducer = \"aten::silu\"\naction = \"offload\"");
  EXPECT_EQ(action_at(by_name, "layers.1.mlp.act", "aten::mul"), "offload");
  EXPECT_EQ(bytes_of(by_name, ActionKind::kOffload), 448_MiB);
  const Plan by_scope =
      plan_by(profile, "[[rule]]\nmade_in = \"*.attention.norm\"\naction = \"recompute\"");
  EXPECT_EQ(action_at(by_scope, "layers.1.attention.qkv", "aten::mm"), "recompute");
  EXPECT_EQ(action_at(by_scope, "layers.1.attention.norm", "aten::_fused_rms_norm"), "keep");
}

TEST(PlanByRules, MatchesBySizeAndElements) {
  const Profile profile = transformer_profile({.layers = 1});
  const auto count = [&](const std::string& condition) {
    return offloaded(plan_by(profile, "[[rule]]\naction = \"offload\"\n" + condition)).size();
  };
  EXPECT_EQ(count("min_size = \"200 MiB\""), 4U);  // ffn wide
  EXPECT_EQ(count("max_size = \"16 MiB\""), 3U);   // key, value, log-sum-exp
  EXPECT_EQ(count("min_size = \"64 MiB\"\nmax_size = \"64 MiB\""),
            count("min_elements = 33554432") - 4);
  EXPECT_EQ(count("min_elements = 117440513"), 0U);
}

TEST(PlanByRules, CountsLayersFromBothEnds) {
  const Profile profile = transformer_profile({.layers = 6});
  const auto layers = [&](const std::string& text) {
    const Plan plan = plan_by(profile, "[[rule]]\nlayers = " + text + "\naction = \"offload\"");
    return layers_with(plan, profile, ActionKind::kOffload);
  };
  EXPECT_THAT(layers("\"0..1,4\""), ElementsAre(0, 1, 4));
  EXPECT_THAT(layers("-1"), ElementsAre(5));
  EXPECT_THAT(layers("\"0..-2\""), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(layers("\"7\""), IsEmpty());
}

TEST(PlanByRules, FindsTheInputsOfGroupsOfLayers) {
  const Profile profile = transformer_profile({.layers = 6});
  const auto inputs = [&](const std::string& conditions) {
    const Plan plan = plan_by(profile, "[[rule]]\naction = \"offload\"\n" + conditions);
    for (const int id : offloaded(plan)) {
      const BufferProfile& buffer = profile.chunks[0].buffers[static_cast<std::size_t>(id)];
      EXPECT_EQ(buffer.position.saver, "aten::_fused_rms_norm");
      EXPECT_NE(buffer.producer.layer, buffer.layer);
    }
    return layers_with(plan, profile, ActionKind::kOffload);
  };
  EXPECT_THAT(inputs("group_inputs = 1"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(inputs("group_inputs = 2"), ElementsAre(0, 2, 4));
  EXPECT_THAT(inputs("group_inputs = 4"), ElementsAre(0, 4));
  EXPECT_THAT(inputs("group_inputs = 99"), ElementsAre(0));
  EXPECT_THAT(inputs("group_inputs = 2\nlayers = \"1..4\""), ElementsAre(1, 3));
  EXPECT_THAT(inputs("group_inputs = 2\nlayers = \"0..2,3..5\""), ElementsAre(0, 2, 3, 5));
}

TEST(PlanByRules, LeavesWhatAFractionDoesNotTakeToTheRulesBelow) {
  const Profile profile = baseline_profile({100, 100, 100, 100});
  const Plan plan = plan_by(profile, R"(
[[rule]]
fraction = 0.5
action = "offload"
[[rule]]
fraction = 0.5
action = "recompute")");
  EXPECT_THAT(offloaded(plan), ElementsAre(0, 1));
  EXPECT_EQ(plan.chunks[0].decisions[2].action.kind, ActionKind::kRecompute);
  EXPECT_EQ(plan.chunks[0].decisions[3].action.kind, ActionKind::kKeep);
  EXPECT_EQ(plan.chunks[0].decisions[3].reason, "beyond the fraction of rule 2 (r.toml:5): keep");
}

TEST(PlanByRules, TakesAFractionInOrderOfProductionNotOfSaving) {
  Profile profile = baseline_profile({100, 100, 100, 100});
  ChunkProfile& chunk = profile.chunks[0];
  for (BufferProfile& buffer : chunk.buffers) buffer.producer.call = 3 - buffer.id;
  chunk.buffers[1].producer = {};  // The maker is unknown: it existed first.
  const Plan plan = plan_by(profile, "[[rule]]\nfraction = 0.75\naction = \"offload\"");
  EXPECT_THAT(offloaded(plan), ElementsAre(1, 2, 3));
}

TEST(PlanByRules, SkipsTheFirstBytes) {
  const Profile profile = baseline_profile({100, 100, 100, 100});
  const auto ids = [&](const std::string& conditions) {
    return offloaded(plan_by(profile, "[[rule]]\naction = \"offload\"\n" + conditions));
  };
  EXPECT_THAT(ids("skip = 100"), ElementsAre(1, 2, 3));
  EXPECT_THAT(ids("skip = 101"), ElementsAre(2, 3));
  EXPECT_THAT(ids("skip = 100\nfraction = 0.5"), ElementsAre(1, 2));
  EXPECT_THAT(ids("skip = \"1 GiB\""), IsEmpty());
  const Plan plan = plan_by(profile, "[[rule]]\naction = \"offload\"\nskip = 1");
  EXPECT_EQ(plan.chunks[0].decisions[0].reason, "skipped by rule 1 (r.toml:1): keep");
}

TEST(PlanByRules, TakesBuffersOfNoBytesWithTheOthers) {
  EXPECT_THAT(offloaded(plan_by(baseline_profile({0, 0}), "[[rule]]\naction = \"offload\"")),
              ElementsAre(0, 1));
}

// Any fraction takes the shortest run of buffers, in order of production, that reaches it.
TEST(PlanByRules, TakeTheShortestRunThatReachesAnyFraction) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<std::uint64_t> sizes(1 + random() % 40);
    for (std::uint64_t& size : sizes) size = random() % (1ULL << (random() % 40)) + 1;
    Profile profile = baseline_profile(sizes);
    for (BufferProfile& buffer : profile.chunks[0].buffers) {
      buffer.producer.call = static_cast<int>(random() % sizes.size());
    }
    const double fraction = static_cast<double>(random() % 1001) / 1000;
    Rules rules = parse_rules("[[rule]]\naction = \"offload\"", "r.toml");
    rules.rules[0].fraction = fraction;
    const Plan plan = make_plan(profile, rules);

    std::vector<int> order(sizes.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    const auto call = [&](int id) {
      return profile.chunks[0].buffers[static_cast<std::size_t>(id)].producer.call;
    };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return call(a) < call(b); });
    long double total = 0;
    for (const std::uint64_t size : sizes) total += static_cast<long double>(size);
    const long double wanted = fraction * total;
    long double taken = 0;
    for (const int id : order) {
      const Decision& decision = plan.chunks[0].decisions[static_cast<std::size_t>(id)];
      const bool expected = taken < wanted;
      ASSERT_EQ(decision.action.kind == ActionKind::kOffload, expected)
          << "seed " << seed << ", buffer " << id;
      if (expected) taken += static_cast<long double>(sizes[static_cast<std::size_t>(id)]);
    }
    ASSERT_GE(taken, wanted) << "seed " << seed;
    ASSERT_EQ(make_plan(profile, rules), plan) << "seed " << seed;
  }
}

TEST(PlanByRules, TakesAFractionOfEachChunk) {
  const Profile profile = testing::chunked_profile({.layers = 2}, 2);
  const Plan plan =
      plan_by(profile, "[[rule]]\nproducer = \"aten::silu\"\nfraction = 0.5\naction = \"offload\"");
  EXPECT_THAT(layers_with(plan, profile, ActionKind::kOffload), ElementsAre(0, 2));
}

TEST(PlanByRules, GivesTheSamePlanForTheSameModelByOtherNames) {
  for (const char* rules :
       {"[[rule]]\nmodule = \"core_attn\"\naction = \"offload\"",
        "[[rule]]\nmodule = [\"fc1\", \"act\"]\naction = \"offload\"",
        "[[rule]]\nmade_in_module = \"attn_norm\"\naction = \"offload\"",
        "[[rule]]\nmodule = [\"attn_norm\", \"mlp_norm\"]\naction = \"offload\""}) {
    const Plan own = plan_by(transformer_profile({.layers = 4}), rules);
    const Plan llama = plan_by(transformer_profile({.naming = Naming::kLlama, .layers = 4}), rules);
    const Plan gpt = plan_by(transformer_profile({.naming = Naming::kGpt2, .layers = 4}), rules);
    EXPECT_THAT(offloaded(own), ::testing::Not(IsEmpty()));
    EXPECT_EQ(offloaded(own), offloaded(llama)) << rules;
    EXPECT_EQ(offloaded(own), offloaded(gpt)) << rules;
  }
}

TEST(PlanByRules, KeepsSmallBuffersUnderTheLimit) {
  const Plan plan = plan_by(baseline_profile({100, 5000}),
                            "[[rule]]\naction = \"offload\"\n[limits]\nmin_size = 1024");
  EXPECT_THAT(offloaded(plan), ElementsAre(1));
  EXPECT_EQ(plan.chunks[0].decisions[0].reason, "smaller than [limits] min_size: keep");
  EXPECT_EQ(plan.limits.min_size, 1_KiB);
}

TEST(PlanByRules, NotesWhatItsReaderShouldKnow) {
  const Plan plan = plan_by(baseline_profile({100, 5000}), R"(
[[rule]]
scope = "layers.*"
action = "offload"
[[rule]]
action = "offload"
[limits]
host = "1 KiB")");
  EXPECT_THAT(
      plan.notes,
      ElementsAre("rule 1 (r.toml:2) decided no buffer",
                  "one pass of each chunk offloads 5.0 KiB, more than [limits] host = 1.0 KiB: "
                  "what finds no room is kept"));
}

TEST(PlanByRules, OfAnEmptyProfileIsEmpty) {
  EXPECT_EQ(plan_by({}, "[[rule]]\naction = \"offload\"").chunks.size(), 0U);
}

}  // namespace
}  // namespace spillway
