#include "torch/execute/schedule_follower.hpp"

#include <gtest/gtest.h>

#include "spillway/schedule/schedule.hpp"

namespace spillway {
namespace {

const PassSchedule kSecondOfThree = passes_of(
    make_schedule(ScheduleKind::kOneForwardOneBackward, {1, 3, 1, 3}));  // F0 F1 B0 F2 B1 B2.

TEST(ScheduleFollower, ReturnsTheNextBackward) {
  ScheduleFollower follower;
  follower.begin(kSecondOfThree);
  std::vector<int> next;
  for (const PassStep& step : kSecondOfThree) {
    EXPECT_TRUE(follower.advance(step));
    next.push_back(follower.next_backward() ? follower.next_backward()->micro_batch : -1);
  }
  EXPECT_EQ(next, (std::vector<int>{0, 0, 1, 1, 2, -1}));
  EXPECT_TRUE(follower.complete());
}

TEST(ScheduleFollower, ReturnsWhetherABackwardPrecedesTheNextForward) {
  ScheduleFollower follower;
  follower.begin({{0, 0, false}, {1, 0, false}, {1, 0, true}, {0, 0, true}});
  EXPECT_FALSE(follower.backward_is_near());
  EXPECT_TRUE(follower.advance({0, 0, false}));
  EXPECT_FALSE(follower.backward_is_near());
  EXPECT_TRUE(follower.advance({1, 0, false}));
  EXPECT_TRUE(follower.backward_is_near());
  EXPECT_TRUE(follower.advance({1, 0, true}));
  EXPECT_FALSE(follower.backward_is_near());
  follower.begin({{0, 0, false}, {0, 1, false}, {0, 0, true}, {0, 1, true}});
  EXPECT_TRUE(follower.advance({0, 0, false}));
  EXPECT_FALSE(follower.backward_is_near());
  EXPECT_TRUE(follower.advance({0, 1, false}));
  EXPECT_TRUE(follower.backward_is_near());
}

TEST(ScheduleFollower, StopsAfterAnUnexpectedPass) {
  ScheduleFollower follower;
  follower.begin(kSecondOfThree);
  EXPECT_TRUE(follower.advance({0, 0, false}));
  EXPECT_FALSE(follower.advance({0, 2, false}));
  EXPECT_FALSE(follower.on_schedule());
  EXPECT_FALSE(follower.next_backward());
  EXPECT_FALSE(follower.backward_is_near());
  EXPECT_TRUE(follower.advance({0, 1, false})) << "it is said once a step";
  EXPECT_TRUE(follower.complete());
}

TEST(ScheduleFollower, SkipsBackwardsButNotForwards) {
  ScheduleFollower follower;
  follower.begin(kSecondOfThree);
  EXPECT_TRUE(follower.advance({0, 0, false}));
  EXPECT_TRUE(follower.advance({0, 1, false}));
  EXPECT_TRUE(follower.advance({0, 2, false}));
  EXPECT_FALSE(follower.advance({0, 0, true})) << "it was passed over";
  follower.begin(kSecondOfThree);
  EXPECT_TRUE(follower.advance({0, 0, false}));
  EXPECT_FALSE(follower.advance({0, 0, true})) << "a forward stands before it";
}

TEST(ScheduleFollower, DetectsAMissingForwardAtTheEnd) {
  ScheduleFollower follower;
  follower.begin(kSecondOfThree);
  EXPECT_TRUE(follower.advance({0, 0, false}));
  EXPECT_TRUE(follower.advance({0, 1, false}));
  EXPECT_FALSE(follower.complete());
  EXPECT_TRUE(follower.advance({0, 2, false}));
  EXPECT_TRUE(follower.complete());
}

TEST(ScheduleFollower, AcceptsEverythingWithoutASchedule) {
  ScheduleFollower follower;
  follower.begin({});
  EXPECT_TRUE(follower.advance({0, 7, true}));
  EXPECT_FALSE(follower.on_schedule());
  EXPECT_TRUE(follower.complete());
}

}  // namespace
}  // namespace spillway
