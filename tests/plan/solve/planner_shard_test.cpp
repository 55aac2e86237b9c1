#include <algorithm>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/synthetic_timeline.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/planner.hpp"
#include "spillway/plan/simulate.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using testing::error_text;
using ::testing::HasSubstr;
using testing::llama_profile;

PlannerOptions within_without_windows(Bytes budget) {
  PlannerOptions options;
  options.budget = budget;
  options.time_limit = std::chrono::milliseconds(600'000);  // It never ends a search.
  options.rules.limits.offload_window = options.rules.limits.prefetch_window = Bytes(0);
  return options;
}

/// Four ranks on which everything is equal, with this many bytes per second for all-gathers.
PlannerOptions among_four(const Profile& profile, Bytes budget, double speed) {
  PlannerOptions options = within_without_windows(budget);
  options.shard = {.ranks = 4, .bytes_per_second = speed};
  for (const ChunkProfile& chunk : profile.chunks) {
    options.equal.emplace_back(chunk.buffers.size(), true);
  }
  return options;
}

int shards(const Plan& plan) {
  int count = 0;
  for (const Decision& decision : plan.chunks[0].decisions) count += decision.action.shard ? 1 : 0;
  return count;
}

Bytes share(Bytes bytes, double part) {
  return Bytes(static_cast<std::uint64_t>(static_cast<double>(bytes.count()) * part));
}

/// A profile in which nothing can be recomputed.
Profile without_recipes(int layers) {
  Profile profile = llama_profile(layers);
  for (ChunkProfile& chunk : profile.chunks) {
    for (BufferProfile& buffer : chunk.buffers) buffer.recipe = {};
  }
  return profile;
}

/// There is a plan for the budget, but not without the group.
Plan only_with_shards(const Profile& profile, PlannerOptions alone, PlannerOptions together,
                      Bytes budget) {
  alone.budget = together.budget = budget;
  EXPECT_THROW((void)plan_for_budget(profile, alone), PlanInfeasible);
  const PlannedStep step = plan_for_budget(profile, together);
  EXPECT_GT(shards(step.plan), 0);
  EXPECT_LE(step.peak, budget);
  SimulateOptions simulation;
  simulation.shard = together.shard;
  EXPECT_EQ(simulate(profile, step.plan, simulation).peak, step.peak);
  return step.plan;
}

TEST(PlannerShard, NeedsLessMemoryForASlowdown) {
  const Profile profile = llama_profile(2);
  PlannerOptions alone = within_without_windows(Bytes(0));
  alone.max_slowdown = 1.005;
  const PlannedStep whole = plan_for_budget(profile, alone);
  PlannerOptions together = among_four(profile, Bytes(0), 400e9);
  together.max_slowdown = 1.005;
  const PlannedStep parts = plan_for_budget(profile, together);
  EXPECT_GT(shards(parts.plan), 0);
  EXPECT_LE(static_cast<double>(parts.step_ns), 1.005 * static_cast<double>(parts.base_ns));
  EXPECT_LT(parts.peak.count() * 10, whole.peak.count() * 9);
}

TEST(PlannerShard, UsesAFastGroupToSaveTime) {
  const Profile profile = llama_profile(4);
  const Bytes kept = simulate(profile, make_plan(profile, {})).peak;
  const Bytes budget = share(kept, 0.45);
  const PlannedStep alone = plan_for_budget(profile, within_without_windows(budget));
  const PlannerOptions options = among_four(profile, budget, 400e9);
  const PlannedStep together = plan_for_budget(profile, options);
  EXPECT_LT(together.step_ns, alone.step_ns);
  EXPECT_LE(together.peak, budget);
  EXPECT_GT(shards(together.plan), 0);
  SimulateOptions simulation;
  simulation.shard = options.shard;
  const Simulation again = simulate(profile, together.plan, simulation);
  EXPECT_EQ(again.step_ns, together.step_ns);
  EXPECT_EQ(again.peak, together.peak);
  for (const Decision& decision : together.plan.chunks[0].decisions) {
    if (!decision.action.shard) continue;
    EXPECT_NE(decision.action.kind, ActionKind::kRecompute);
    EXPECT_THAT(decision.reason, HasSubstr("a part on each rank"));
  }
}

TEST(PlannerShard, DoesNotUseASlowGroup) {
  const Profile profile = llama_profile(4);
  const Bytes kept = simulate(profile, make_plan(profile, {})).peak;
  const Bytes budget = share(kept, 0.6);
  const PlannedStep alone = plan_for_budget(profile, within_without_windows(budget));
  const PlannedStep together = plan_for_budget(profile, among_four(profile, budget, 1e8));
  EXPECT_EQ(shards(together.plan), 0);
  EXPECT_EQ(together.step_ns, alone.step_ns);
  EXPECT_EQ(together.bound_ns, alone.bound_ns);
}

TEST(PlannerShard, TakesOnlyWhatIsEqual) {
  const Profile profile = llama_profile(4);
  const Bytes kept = simulate(profile, make_plan(profile, {})).peak;
  PlannerOptions options = among_four(profile, share(kept, 0.45), 400e9);
  for (std::size_t id = 0; id < options.equal[0].size(); ++id) options.equal[0][id] = id % 3 == 0;
  const PlannedStep step = plan_for_budget(profile, options);
  EXPECT_GT(shards(step.plan), 0);
  for (const Decision& decision : step.plan.chunks[0].decisions) {
    if (!decision.action.shard) continue;
    EXPECT_EQ(decision.buffer % 3, 0);
  }
}

/// Options of a rank by itself and of one among four, with no host to offload to.
std::pair<PlannerOptions, PlannerOptions> without_host(const Profile& profile) {
  std::pair<PlannerOptions, PlannerOptions> both = {within_without_windows(Bytes(0)),
                                                    among_four(profile, Bytes(0), 400e9)};
  both.first.rules.limits.host = both.second.rules.limits.host = Bytes(0);
  return both;
}

TEST(PlannerShard, ShardsNothingWhereEverythingFits) {
  const Profile profile = llama_profile(2);
  const Bytes kept = simulate(profile, make_plan(profile, {})).peak;
  const PlannedStep step = plan_for_budget(profile, among_four(profile, kept, 400e9));
  EXPECT_EQ(shards(step.plan), 0);
  EXPECT_EQ(step.step_ns, step.base_ns);
}

TEST(PlannerShard, FitsABudgetThatNothingElseFits) {
  const Profile profile = without_recipes(4);
  auto [alone, together] = without_host(profile);
  // Without them, with neither a host nor recipes, everything is kept.
  const Bytes kept = simulate(profile, make_plan(profile, {})).peak;
  EXPECT_EQ(smallest_budget(profile, alone).budget, kept);
  const Bytes least = smallest_budget(profile, together).budget;
  EXPECT_LT(least, share(kept, 0.5));
  for (std::uint64_t i = 0; i < 4; ++i) {
    const Bytes budget(least.count() + (kept - least).count() * i / 4);
    SCOPED_TRACE(to_string(budget));
    (void)only_with_shards(profile, alone, together, budget);
  }
}

TEST(PlannerShard, FitsABudgetTogetherWithRecompute) {
  const Profile profile = llama_profile(2);
  auto [alone, together] = without_host(profile);
  for (std::size_t id = 0; id < together.equal[0].size(); ++id) {
    together.equal[0][id] = id % 2 == 0;
  }
  const Bytes least = smallest_budget(profile, together).budget;
  const Plan plan = only_with_shards(profile, alone, together, least);
  EXPECT_GT(std::count_if(plan.chunks[0].decisions.begin(), plan.chunks[0].decisions.end(),
                          [](const Decision& decision) {
                            return decision.action.kind == ActionKind::kRecompute;
                          }),
            0);
}

TEST(PlannerShard, NamesTheSmallestBudgetOfPlansThatShard) {
  const Profile profile = without_recipes(2);
  PlannerOptions options = among_four(profile, Bytes(0), 400e9);
  options.rules.limits.host = Bytes(0);
  const Bytes least = smallest_budget(profile, options).budget;
  options.budget = least - Bytes(1);
  EXPECT_THAT(error_text<PlanInfeasible>([&] { (void)plan_for_budget(profile, options); }),
              HasSubstr(": the smallest peak is " + to_string(least) + " ("));
  const std::vector<CurvePoint> curve = plan_curve(profile, options);
  EXPECT_EQ(curve.front().budget, least);
  for (const CurvePoint& point : curve) EXPECT_TRUE(point.feasible) << to_string(point.budget);
}

}  // namespace
}  // namespace spillway
