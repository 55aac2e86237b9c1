#include "torch/execute/never_moved.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Action kOffload{ActionKind::kOffload, false};

/// Two buffers, saved with the signatures 7 and 8.
Plan offloading_plan() {
  Plan plan;
  ChunkPlan& chunk = plan.chunks.emplace_back();
  for (const int buffer : {0, 1}) {
    Decision& decision = chunk.decisions.emplace_back();
    decision.buffer = buffer;
    decision.position.scope = "layer." + std::to_string(buffer);
    decision.position.saver = "mul";
    decision.action = kOffload;
    decision.reason = "planner";
    chunk.sites.buffer.push_back(buffer);
    chunk.sites.kind.push_back(0);
  }
  chunk.sites.signature = {7, 8};
  chunk.anchors.emplace_back().name = "add";
  chunk.anchors.back().action = kOffload;
  return plan;
}

TEST(NeverMoved, IsKeptByTheCurrentPlanAndByLaterOnes) {
  NeverMoved never;
  never.find({0, 1}, "its owner freed it");
  const NeverMoved::Found found = never.take_found();
  EXPECT_TRUE(never.take_found().empty());
  Plan plan = offloading_plan();
  EXPECT_THAT(never.keep(found, plan), ElementsAre("layer.1 mul: its owner freed it"));
  EXPECT_EQ(plan.chunks[0].decisions[0].action, kOffload);
  EXPECT_EQ(plan.chunks[0].decisions[1].action, Action{});
  EXPECT_EQ(plan.chunks[0].decisions[1].fixed, FixedReason::kOwnedElsewhere);
  EXPECT_EQ(plan.chunks[0].decisions[1].reason, "planner, but its owner freed it");
  EXPECT_TRUE(never.contains(0, 8));
  EXPECT_FALSE(never.contains(0, 7));
  Plan later = offloading_plan();
  EXPECT_TRUE(never.amend(later));
  EXPECT_EQ(later.chunks[0].decisions[0].action, kOffload);
  EXPECT_EQ(later.chunks[0].decisions[1].action, Action{});
  EXPECT_THAT(later.chunks[0].decisions[1].reason, HasSubstr("an earlier step found"));
}

TEST(NeverMoved, MayBeAnAnchor) {
  NeverMoved never;
  never.find({0, 2}, "its owner freed it");
  Plan plan = offloading_plan();
  EXPECT_THAT(never.keep(never.take_found(), plan),
              ElementsAre("the output of add: its owner freed it"));
  EXPECT_EQ(plan.chunks[0].anchors[0].action, Action{});
}

TEST(NeverMoved, IsWhatARecordingStepFindsToBeWrittenOrFreed) {
  Profile profile;
  ChunkProfile& chunk = profile.chunks.emplace_back();
  int id = 0;
  for (const FixedReason reason : {FixedReason::kNone, FixedReason::kChangedLater,
                                   FixedReason::kOwnedElsewhere, FixedReason::kParameter}) {
    chunk.buffers.emplace_back().id = id;
    chunk.buffers.back().fixed = reason;
    chunk.sites.emplace_back().buffer = id;
    chunk.sites.back().signature = static_cast<Signature>(10 + id++);
  }
  NeverMoved never;
  never.add(0, chunk);
  EXPECT_FALSE(never.contains(0, 10));
  EXPECT_TRUE(never.contains(0, 11));
  EXPECT_TRUE(never.contains(0, 12));
  EXPECT_FALSE(never.contains(0, 13));
  EXPECT_FALSE(never.contains(1, 11));
  NeverMoved::keep({{{0, 0}, "its owner freed it"}, {{0, 3}, "its owner freed it"}}, profile);
  EXPECT_EQ(profile.chunks[0].buffers[0].fixed, FixedReason::kOwnedElsewhere);
  EXPECT_EQ(profile.chunks[0].buffers[3].fixed, FixedReason::kParameter);
}

}  // namespace
}  // namespace spillway
