#include "spillway/plan/diff.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plan/support/plan_queries.hpp"
#include "plan/support/synthetic_profile.hpp"

namespace spillway {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::plan_by;
using testing::transformer_profile;

constexpr const char* kOffloadActivations =
    "[[rule]]\nscope = \"*.mlp.act\"\naction = \"offload\"\n";
constexpr const char* kRecompute =
    "[[rule]]\nscope = \"*.mlp.act\"\nlayers = \"0..2\"\naction = \"recompute\"\n"
    "[[rule]]\nscope = \"*.mlp.act\"\naction = \"offload\"\n[limits]\nhost = \"2 GiB\"\n";

TEST(PlanDifferences, AreEmptyExactlyForEqualPlans) {
  const Profile profile = transformer_profile({.layers = 2});
  const Plan plan = plan_by(profile, kOffloadActivations);
  EXPECT_TRUE(difference(plan, plan).empty());
  EXPECT_EQ(to_text(difference(plan, plan)), "the plans are equal\n");
  const std::vector<void (*)(Plan&)> changes = {
      [](Plan& each) { each.structure = "other"; },
      [](Plan& each) { each.limits.prefetch_window = Bytes(1); },
      [](Plan& each) { each.limits.offload_window = Bytes(1); },
      [](Plan& each) { each.limits.min_size = Bytes(1); },
      [](Plan& each) { each.limits.recompute_cache = Bytes(1); },
      [](Plan& each) { each.budget = Bytes(1); },
      [](Plan& each) { each.predicted_peak = Bytes(1); },
      [](Plan& each) { each.predicted_step_ns = 1; },
      [](Plan& each) { each.base_step_ns = 1; },
      [](Plan& each) { each.bound_step_ns = 1; },
      [](Plan& each) { each.recompute_collectives = true; },
      [](Plan& each) { each.notes.emplace_back("a note"); },
      [](Plan& each) { each.chunks[0].decisions[3].bytes += Bytes(1); },
      [](Plan& each) { each.chunks[0].decisions[3].reason = "another"; },
      [](Plan& each) { each.chunks[0].decisions[3].fallback = ActionKind::kOffload; },
      [](Plan& each) { each.chunks[0].decisions[3].action.shard = true; },
      [](Plan& each) { each.chunks[0].decisions[3].fixed = FixedReason::kChangedLater; },
      [](Plan& each) { each.chunks[0].decisions.pop_back(); },
      [](Plan& each) { each.chunks[0].sites.buffer[0] = 1; },
      [](Plan& each) { each.chunks[0].anchors.emplace_back(); },
      [](Plan& each) { each.chunks[0].calls_before_first_save = 7; },
      [](Plan& each) {
        each.chunks[0].operators.push_back({1, "aten::mm"});
      },
      [](Plan& each) { each.chunks[0].need_order.pop_back(); },
      [](Plan& each) {
        each.chunks[0].residency.add({{1}, {1}, 1, {1}});
      },
      [](Plan& each) { each.chunks[0].residency.unpack_order = {1}; },
      [](Plan& each) { each.cap = Bytes(1); },
      [](Plan& each) { each.chunks[0].chunk = 1; },
      [](Plan& each) { each.chunks.clear(); },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Plan other = plan;
    changes[i](other);
    EXPECT_FALSE(difference(plan, other).empty()) << "change " << i;
    EXPECT_FALSE(difference(other, plan).empty()) << "change " << i;
  }
}

TEST(PlanDifferences, FoldTheScopesOfBuffersWithAnotherAction) {
  const Profile profile = transformer_profile({.layers = 4});
  const PlanDifference found =
      difference(plan_by(profile, kOffloadActivations), plan_by(profile, kRecompute));
  Bytes bytes;
  for (const ChangedActions& changed : found.buffers) {
    EXPECT_EQ(changed.scope, "layers.0..2.mlp.act");
    EXPECT_EQ(changed.from, "offload");
    EXPECT_EQ(changed.to, "recompute");
    bytes += changed.bytes;
  }
  ASSERT_EQ(found.buffers.size(), 2U);
  EXPECT_EQ(found.buffers[0].name, "aten::silu");
  EXPECT_EQ(found.buffers[0].buffers, 3U);
  EXPECT_EQ(found.buffers[1].name, "aten::mul");
  EXPECT_EQ(found.buffers[1].buffers, 6U);
  EXPECT_EQ(bytes, testing::bytes_of(plan_by(profile, kRecompute), ActionKind::kRecompute));
  EXPECT_THAT(found.bytes,
              ElementsAre(ChangedValue<Bytes>{"host memory", std::nullopt, Bytes(2ULL << 30U)}));
  EXPECT_TRUE(found.same_structure());
}

TEST(PlanDifferences, AreTablesForPeople) {
  const Profile profile = transformer_profile({.layers = 4});
  Plan from = plan_by(profile, kOffloadActivations);
  Plan to = plan_by(profile, kRecompute);
  from.predicted_step_ns = 378'250'000;
  to.predicted_step_ns = 380'000'000;
  const std::string text = to_text(difference(from, to));
  EXPECT_THAT(text, HasSubstr("both plans are for structure " + from.structure + "\n"));
  EXPECT_THAT(text, ContainsRegex("host memory +not said +2.0 GiB \\(2147483648\\)\n"));
  EXPECT_THAT(text, ContainsRegex("predicted step +378.2 ms +380.0 ms\n"));
  EXPECT_THAT(text, HasSubstr("\nanother action: 9 buffers, 2.0 GiB\n"));
  EXPECT_THAT(text, ContainsRegex("0 +layers\\.0\\.\\.2\\.mlp\\.act +aten::mul +6 +1.3 GiB +"
                                  "offload +recompute\n"));
  EXPECT_THAT(text, ContainsRegex("\nalso different: .*recorded operators"));
}

TEST(PlanDifferences, CompareBuffersAtEqualPositionsOfDifferentStructures) {
  const Plan small = plan_by(transformer_profile({.layers = 2}), kOffloadActivations);
  const Plan large = plan_by(transformer_profile({.layers = 3}), kOffloadActivations);
  const PlanDifference grown = difference(small, large);
  EXPECT_FALSE(grown.same_structure());
  ASSERT_FALSE(grown.buffers.empty());
  for (const ChangedActions& each : grown.buffers) {
    EXPECT_EQ(each.from, "");
    EXPECT_THAT(each.scope, ::testing::StartsWith("layers.2."));
  }
  const PlanDifference shrunk = difference(large, small);
  ASSERT_EQ(shrunk.buffers.size(), grown.buffers.size());
  for (const ChangedActions& each : shrunk.buffers) EXPECT_EQ(each.to, "");
  const std::string text = to_text(grown);
  EXPECT_THAT(text, HasSubstr("the plans are for different structures, " + small.structure +
                              " and " + large.structure));
  EXPECT_THAT(text, ContainsRegex("layers\\.2\\.mlp\\.act +aten::mul +2 +[0-9.]+ MiB +not there +"
                                  "offload\n"));
}

TEST(PlanDifferences, ShowWhatReplaysStartFrom) {
  const Profile profile =
      transformer_profile({.naming = testing::Naming::kLlama, .layers = 4, .casting_norms = true});
  const auto plan = [&](const std::string& layers) {
    return plan_by(profile, "[[rule]]\nlayers = \"" + layers + "\"\naction = \"recompute\"\n");
  };
  const PlanDifference found = difference(plan("1..2"), plan("1..1"));
  ASSERT_EQ(found.anchors.size(), 1U);
  EXPECT_EQ(found.anchors[0].to, "");
  EXPECT_EQ(found.anchors[0].buffers, 1U);
  EXPECT_THAT(to_text(found), HasSubstr("another action: 1 anchor, 64.0 MiB\n"));
}

TEST(PlanDifferences, AreJsonForPrograms) {
  const Profile profile = transformer_profile({.layers = 4});
  const auto json = nlohmann::json::parse(
      to_json(difference(plan_by(profile, kOffloadActivations), plan_by(profile, kRecompute))));
  EXPECT_EQ(json["schema"], "spillway.diff/1");
  EXPECT_EQ(json["equal"], false);
  EXPECT_EQ(json["same_structure"], true);
  EXPECT_EQ(json["buffers"][0]["scope"], "layers.0..2.mlp.act");
  EXPECT_EQ(json["buffers"][0]["buffers"], 3);
  EXPECT_EQ(json["bytes"][0]["name"], "host memory");
  EXPECT_FALSE(json["bytes"][0].contains("from"));
  EXPECT_EQ(json["bytes"][0]["to"], 2ULL << 30U);
  EXPECT_THAT(json["anchors"], IsEmpty());
}

}  // namespace
}  // namespace spillway
