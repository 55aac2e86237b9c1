#include "plan/solve/planner_space.hpp"

#include <gtest/gtest.h>

#include "plan/solve/planner_search.hpp"
#include "plan/support/graph_builder.hpp"
#include "plan/support/synthetic_timeline.hpp"

namespace spillway {
namespace {

using testing::GraphBuilder;

constexpr std::uint64_t kMebibyte = 1 << 20;

Profile timed(const GraphBuilder& graph, double bytes_per_second) {
  Profile profile = graph.profile();
  profile.link = {bytes_per_second, bytes_per_second, bytes_per_second, bytes_per_second};
  testing::add_timelines(profile);
  return profile;
}

ChunkSpace space_in(const Profile& profile, const Rules& rules = {}) {
  const Matcher matcher(profile.chunks[0], profile.layers);
  return space_of(Weights(profile.chunks[0], profile, rules, matcher));
}

/// Three results, each made of the one before, saved when the next call reads it.
GraphBuilder chain(const std::vector<std::int64_t>& ns) {
  GraphBuilder graph;
  int value = graph.outside(true);
  for (const std::int64_t each : ns) {
    value = graph.call({.reads = {value}, .makes = {100 * kMebibyte}, .ns = each});
    graph.save(value, "s");
  }
  (void)graph.call({.reads = {value}, .makes = {1}, .ns = 1'000'000});
  return graph;
}

TEST(PlannerSpace, MayDecideWhatCanBeRecomputedAndMoved) {
  GraphBuilder graph = chain({1'000'000, 1'000'000});
  graph.chunk().operators[1].no_replay = "a reason";
  graph.chunk().buffers[1].recipe.usable = true;
  const Profile profile = timed(graph, 1e9);
  const ChunkSpace space = space_in(profile);
  EXPECT_TRUE(space.buffers[0].keep && space.buffers[0].offload && space.buffers[0].recompute);
  EXPECT_TRUE(space.buffers[1].keep && space.buffers[1].offload);
  EXPECT_FALSE(space.buffers[1].recompute);
}

TEST(PlannerSpace, LeavesWhatRulesDecide) {
  const Profile profile = timed(chain({1'000'000}), 1e9);
  const Rules rules = parse_rules("[[rule]]\nscope = \"s\"\naction = \"offload\"\n", "rules");
  const ChunkSpace space = space_in(profile, rules);
  EXPECT_EQ(space.buffers[0].count(), 1);
  EXPECT_TRUE(space.buffers[0].offload);
}

TEST(PlannerSpace, NeverRecomputesWhatLeadsFromOneLayerToTheNext) {
  GraphBuilder graph(2);
  const int input = graph.outside(true);
  const int first = graph.call({.layer = 0, .reads = {input}, .makes = {kMebibyte}});
  graph.save(first, "inside", 0);
  const int border = graph.call({.layer = 0, .reads = {first}, .makes = {kMebibyte}});
  graph.save(border, "border", 1);
  (void)graph.call({.layer = 1, .reads = {border}});
  const Profile profile = timed(graph, 1e9);
  const ChunkSpace space = space_in(profile);
  EXPECT_TRUE(space.buffers[0].recompute);
  EXPECT_FALSE(space.buffers[1].recompute);
  EXPECT_TRUE(space.buffers[1].offload);
}

TEST(PlannerSpace, KeepsOrReplaysUnsavedValuesAsRequested) {
  GraphBuilder graph;
  const int input = graph.outside(true);
  const int unsaved = graph.call({.reads = {input}, .makes = {kMebibyte}, .ns = 5});
  const int saved = graph.call({.reads = {unsaved}, .makes = {2 * kMebibyte}, .ns = 5});
  graph.save(saved, "s");
  (void)graph.call({.reads = {saved}});
  const Profile profile = timed(graph, 1e9);
  const Rules none;
  Evaluator evaluator(profile, none, {});
  Choice choice = {choose_everywhere(evaluator.spaces()[0], ActionKind::kRecompute)};
  Request& request = choice[0].values[static_cast<std::size_t>(unsaved)];
  request = Request::kReplay;
  EXPECT_TRUE(evaluator.plan(choice).chunks[0].anchors.empty());
  EXPECT_EQ(evaluator.plan(choice).chunks[0].operators.size(), 2U);
  for (const Request held : {Request::kKeep, Request::kOffload}) {
    request = held;
    const Plan plan = evaluator.plan(choice);
    ASSERT_EQ(plan.chunks[0].anchors.size(), 1U);
    EXPECT_EQ(plan.chunks[0].anchors[0].action.kind,
              held == Request::kKeep ? ActionKind::kKeep : ActionKind::kOffload);
  }
}

TEST(PlannerSearch, RecomputesWhatIsCheapestPerByteOverASlowLink) {
  const Profile profile = timed(chain({9'000'000, 1'000'000, 5'000'000}), 1e6);
  PlannerOptions options;
  options.budget =
      Bytes(plan_for_budget(profile, {.budget = Bytes(1ULL << 40U)}).base_peak.count() - kMebibyte);
  const PlannedStep step = plan_for_budget(profile, options);
  EXPECT_EQ(step.plan.chunks[0].decisions[0].action.kind, ActionKind::kKeep);
  EXPECT_EQ(step.plan.chunks[0].decisions[1].action.kind, ActionKind::kRecompute);
  EXPECT_EQ(step.plan.chunks[0].decisions[2].action.kind, ActionKind::kKeep);
  EXPECT_EQ(step.step_ns, step.base_ns + 1'000'000);
}

TEST(PlannerSearch, OffloadsWhatHidesBehindCompute) {
  const Profile profile = timed(chain({9'000'000, 9'000'000, 9'000'000}), 1e12);
  PlannerOptions options;
  options.budget =
      Bytes(plan_for_budget(profile, {.budget = Bytes(1ULL << 40U)}).base_peak.count() - kMebibyte);
  const PlannedStep step = plan_for_budget(profile, options);
  EXPECT_EQ(step.plan.chunks[0].decisions[0].action.kind, ActionKind::kOffload);
  EXPECT_LT(step.step_ns, step.base_ns + 1'000'000);
}

}  // namespace
}  // namespace spillway
