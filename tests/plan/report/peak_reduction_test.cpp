#include "spillway/plan/peak_reduction.hpp"

#include <gtest/gtest.h>

#include "plan/support/graph_builder.hpp"
#include "plan/support/plan_queries.hpp"
#include "plan/support/synthetic_timeline.hpp"

namespace spillway {
namespace {

using testing::GraphBuilder;
using testing::llama_profile;
using testing::plan_by;

constexpr const char* kOffloadEverything = "[[rule]]\naction = \"offload\"\n";

/// Calls that each save a buffer of 10 MB, which nothing reads again in forward.
Profile row_of_calls(int calls) {
  GraphBuilder graph;
  for (int i = 0; i < calls; ++i) {
    graph.save(graph.call({.makes = {10'000'000}, .ns = 1'000'000}), "saved");
  }
  Profile profile = graph.profile();
  profile.link = {10e9, 10e9, 10e9, 10e9};
  testing::add_timelines(profile);
  for (Moment& moment : profile.chunks[0].timeline) moment.untracked_bytes = 0;
  return profile;
}

TEST(PeakReduction, IsWithEverythingGoneAtOnceWhateverTheWindows) {
  const Profile profile = row_of_calls(10);
  Plan plan = plan_by(profile, kOffloadEverything);
  plan.limits.offload_window = plan.limits.prefetch_window = Bytes(60'000'000);
  ASSERT_GE(simulate(profile, plan).peak, Bytes(60'000'000));
  const auto found = peak_reduction(profile, plan);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kept, Bytes(100'000'000));
  EXPECT_LE(found->least, Bytes(20'000'000));  // One on its way, one at work.
  Plan allowed = plan_by(profile, kOffloadEverything);
  set_residency(profile, Bytes(90'000'000), allowed);
  EXPECT_EQ(peak_reduction(profile, allowed), found);
}

TEST(PeakReduction, CountsThePassesInFlight) {
  const Profile profile = row_of_calls(10);
  const PassSchedule two = {{0, 0, false}, {0, 1, false}, {0, 0, true}, {0, 1, true}};
  SimulateOptions options;
  options.schedule = two;
  const auto found = peak_reduction(profile, plan_by(profile, kOffloadEverything), options);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kept, Bytes(200'000'000));
  EXPECT_LE(found->least, Bytes(20'000'000));
}

/// What the first pass of a model allocates permanently exists before later steps.
TEST(PeakReduction, IsThatOfAStepAfterTheFirst) {
  Profile profile = row_of_calls(10);
  const PassSchedule two = {{0, 0, false}, {0, 0, true}, {0, 1, false}, {0, 1, true}};
  SimulateOptions options;
  options.schedule = two;
  const Plan plan = plan_by(profile, kOffloadEverything);
  const auto before = peak_reduction(profile, plan, options);
  ChunkProfile& chunk = profile.chunks[0];
  chunk.later_untracked_bytes.emplace(chunk.timeline.size(), 0);
  for (Moment& moment : chunk.timeline) moment.untracked_bytes = 150'000'000;
  ASSERT_TRUE(before);
  EXPECT_GT(simulate(profile, make_plan(profile, {}), options).peak, before->kept);
  EXPECT_EQ(peak_reduction(profile, plan, options), before);
  // No later pass was profiled: what is there may be allocated again in every step.
  chunk.later_untracked_bytes.reset();
  EXPECT_NE(peak_reduction(profile, plan, options), before);
}

TEST(PeakReduction, IsLessWhereThePeakIsElsewhere) {
  const Profile profile = llama_profile(4);
  const Plan plan = plan_by(profile, kOffloadEverything);
  Bytes moved;
  for (const Decision& decision : plan.chunks[0].decisions) {
    if (decision.action.kind == ActionKind::kOffload) moved += decision.bytes;
  }
  const auto found = peak_reduction(profile, plan);
  ASSERT_TRUE(found);
  EXPECT_GT(found->most(), Bytes(0));
  EXPECT_LT(found->most(), moved);
}

TEST(PeakReduction, IsNothingWithoutTimesOrForAnotherModel) {
  Profile profile = row_of_calls(3);
  const Plan plan = plan_by(profile, kOffloadEverything);
  EXPECT_FALSE(peak_reduction(row_of_calls(4), plan));
  profile.chunks[0].timeline.clear();
  EXPECT_FALSE(peak_reduction(profile, plan));
}

TEST(PeakReduction, SaysHowMuchOfItWasReached) {
  const PeakReduction reduction{Bytes(100), Bytes(20)};
  EXPECT_DOUBLE_EQ(reduction.reached(Bytes(110), Bytes(30)).value(), 1.0);
  EXPECT_DOUBLE_EQ(reduction.reached(Bytes(110), Bytes(70)).value(), 0.5);
  EXPECT_DOUBLE_EQ(reduction.reached(Bytes(110), Bytes(150)).value(), -0.5);
  EXPECT_FALSE((PeakReduction{Bytes(20), Bytes(20)}.reached(Bytes(110), Bytes(70))));
  EXPECT_FALSE((PeakReduction{Bytes(20), Bytes(30)}.reached(Bytes(110), Bytes(70))));
}

}  // namespace
}  // namespace spillway
