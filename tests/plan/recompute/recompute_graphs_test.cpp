#include <functional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/graph_builder.hpp"
#include "plan/support/plan_queries.hpp"
#include "plan/support/recompute_queries.hpp"
#include "plan/support/replay_check.hpp"
#include "plan/support/synthetic_profile.hpp"
#include "support/random_cases.hpp"

namespace spillway {
namespace {

using testing::anchors;
using testing::check_replays;
using testing::checked_plan;
using ::testing::ElementsAre;
using testing::GraphBuilder;
using ::testing::IsEmpty;
using testing::kRecompute;
using testing::plan_by;

TEST(Recompute, WalksChainsOfAnyLength) {
  GraphBuilder graph;
  int value = graph.outside(true);
  for (int i = 0; i < 2000; ++i) value = graph.call({.reads = {value}});
  graph.save(value, "recomputed");
  const Plan plan = checked_plan(graph.profile(), kRecompute);
  EXPECT_EQ(plan.chunks[0].operators.size(), 2000U);
  EXPECT_THAT(anchors(plan), IsEmpty());
  EXPECT_THAT(plan.chunks[0].need_order, ElementsAre(0));
}

// Every step reads the one before twice over: 2^1000 ways through, one walk.
TEST(Recompute, WalksEveryCallOnceHoweverManyWaysLeadToIt) {
  GraphBuilder graph;
  int value = graph.call({.no_replay = "no"});
  for (int i = 0; i < 1000; ++i) {
    const int left = graph.call({.scope = "x", .reads = {value}});
    const int right = graph.call({.scope = "x", .reads = {value}});
    value = graph.call({.scope = "x", .reads = {left, right}});
  }
  graph.save(value, "recomputed");
  const Plan all =
      checked_plan(graph.profile(),
                   std::string(kRecompute) + "[[rule]]\nmade_in = \"x\"\naction = \"recompute\"");
  EXPECT_EQ(all.chunks[0].operators.size(), 3001U);
  EXPECT_THAT(anchors(all), ElementsAre("0:0 aten::make is not repeated: no: keep"));
}

TEST(Recompute, OfRandomProfilesCanBeExecuted) {
  const auto cases = static_cast<std::uint64_t>(testing::cases_of(1000));
  std::size_t recorded = 0;
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    std::mt19937_64 random(seed);
    const Profile profile = testing::random_profile(random);
    const Plan plan = plan_by(
        profile, "[[rule]]\nfraction = 0.8\naction = \"recompute\"\nfallback = \"offload\"\n");
    check_replays(plan, profile);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
    for (const ChunkPlan& chunk : plan.chunks) recorded += chunk.operators.size();
  }
  EXPECT_GT(recorded, cases / 20);
}

/// Four layers of calls that read what came before, some of it saved.
Profile random_graph(std::mt19937_64& random) {
  GraphBuilder graph(4, 1e9);
  int values = graph.outside(random() % 4 != 0) + 1;
  const int count = 10 + static_cast<int>(random() % 60);
  const std::vector<std::string> scopes = {"recomputed", "recomputed", "held", "away"};
  for (int i = 0; i < count; ++i) {
    GraphBuilder::Call call{.scope = random() % 4 == 0 ? "covered" : "",
                            .layer = i * 5 / count - 1};
    for (std::uint64_t reads = random() % 4; reads > 0; --reads) {
      const auto back = static_cast<int>(random() % static_cast<std::uint64_t>(values));
      call.reads.push_back(random() % 2 == 0 ? values - 1 : back);
    }
    for (std::uint64_t more = random() % 3; more > 0; --more) call.makes.push_back(random() % 300);
    call.ns = static_cast<std::int64_t>(random() % 150);
    if (random() % 8 == 0) call.no_replay = "no";
    const int first = graph.call(call);
    for (std::size_t made = 0; made < call.makes.size(); ++made, ++values) {
      if (random() % 2 == 0) continue;
      graph.save(first + static_cast<int>(made), scopes[random() % scopes.size()], call.layer);
    }
  }
  return graph.profile();
}

TEST(Recompute, OfRandomGraphsCanBeExecuted) {
  const std::string rules =
      "[[rule]]\ngroup_inputs = 2\naction = \"keep\"\n"
      "[[rule]]\nscope = \"away\"\naction = \"offload\"\n"
      "[[rule]]\nmade_in = \"covered\"\naction = \"recompute\"\n"
      "[[rule]]\nscope = \"recomputed\"\naction = \"recompute\"\n";
  const auto cases = static_cast<std::uint64_t>(testing::cases_of(1000));
  std::size_t recorded = 0;
  std::size_t held = 0;
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    std::mt19937_64 random(seed);
    const Profile profile = random_graph(random);
    if (seed % 20 == 0) {
      ASSERT_EQ(profile_from_json(to_json(profile), "p.json"), profile) << "seed " << seed;
    }
    const Plan plan = plan_by(profile, rules);
    check_replays(plan, profile);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
    recorded += plan.chunks[0].operators.size();
    held += plan.chunks[0].anchors.size();
  }
  EXPECT_GT(recorded, 5 * cases);
  EXPECT_GT(held, 2 * cases);
}

}  // namespace
}  // namespace spillway
