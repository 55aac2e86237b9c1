#include "plan/control/time_updates.hpp"

#include <gtest/gtest.h>

#include "plan/control/recording_delay.hpp"

namespace spillway {
namespace {

Profile profile_of(std::initializer_list<int> chunks, std::int64_t ns = 1000) {
  Profile profile;
  for (const int chunk : chunks) {
    profile.chunks.emplace_back().chunk = chunk;
    profile.chunks.back().forward_ns = ns;
  }
  return profile;
}

/// One step with a pass of each of the chunks is timed and read.
void time_step(TimeUpdates& times, std::initializer_list<int> chunks) {
  for (const int chunk : chunks) times.add({chunk, {}, nullptr});
  EXPECT_TRUE(times.any_unread());
  times.add_read(times.take_unread());
  EXPECT_FALSE(times.any_unread());
}

TEST(TimeUpdates, AreMadeAtOnceTheFirstTime) {
  const Profile profile = profile_of({0});
  TimeUpdates times;
  time_step(times, {0});
  EXPECT_TRUE(times.enough(profile));
  EXPECT_EQ(times.take_update().size(), 1U);
}

TEST(TimeUpdates, WaitForSeveralPassesAfterThat) {
  const Profile profile = profile_of({0, 1});
  TimeUpdates times;
  time_step(times, {0, 1});
  (void)times.take_update();
  for (int i = 0; i < 2; ++i) {
    time_step(times, {0, 0, 1});
    EXPECT_FALSE(times.enough(profile)) << "chunk 1 has " << i + 1;
  }
  time_step(times, {0, 1, 1});
  EXPECT_TRUE(times.enough(profile));
  EXPECT_EQ(times.take_update().size(), 9U);
}

TEST(TimeUpdates, DoNotWaitForAChunkThatDoesNotRun) {
  const Profile profile = profile_of({0, 1});
  TimeUpdates times;
  time_step(times, {0});
  (void)times.take_update();
  for (int i = 0; i < 3; ++i) {
    time_step(times, {0});
    EXPECT_FALSE(times.enough(profile));
  }
  time_step(times, {0});
  EXPECT_TRUE(times.enough(profile));
}

TEST(TimeUpdates, AreMadeThreeTimesForAProfile) {
  TimeUpdates times;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(times.wanted());
    (void)times.take_update();
  }
  EXPECT_FALSE(times.wanted());
  times.profile_replaced();
  EXPECT_TRUE(times.wanted());
}

TEST(TimeUpdates, ForgetWhatIsOfAnotherPlanOrProfile) {
  const Profile profile = profile_of({0});
  TimeUpdates times;
  (void)times.take_update();
  time_step(times, {0, 0, 0});
  times.plan_replaced();
  time_step(times, {0});
  EXPECT_FALSE(times.enough(profile)) << "three of the four were of another plan";
  times.add({0, {}, nullptr});
  times.recording_begins();
  EXPECT_FALSE(times.any_unread());
}

TEST(TimeUpdates, MatterFromTwoPercentOn) {
  EXPECT_FALSE(have_other_times(profile_of({0, 1}), profile_of({0, 1}, 1019)));
  EXPECT_TRUE(have_other_times(profile_of({0, 1}), profile_of({0, 1}, 1021)));
  EXPECT_TRUE(have_other_times(profile_of({0, 1}), profile_of({0, 1}, 900)));
  EXPECT_FALSE(have_other_times(profile_of({0}, 0), profile_of({0}, 900)));
}

TEST(LinkSpeed, IsLoweredWhereAStepWaitsLongerThanPredicted) {
  double alone = 50e9;
  double with_other = 40e9;
  // 5 GB take 100 ms; 2 ms more are 2 %.
  EXPECT_TRUE(slow_down(alone, with_other, Bytes(5'000'000'000), 2e6, 300e6));
  EXPECT_DOUBLE_EQ(alone, 50e9 / 1.02);
  EXPECT_DOUBLE_EQ(with_other, 40e9 / 1.02);
  EXPECT_FALSE(slow_down(alone, with_other, Bytes(5'000'000'000), 0.5e6, 300e6));
  EXPECT_FALSE(slow_down(alone, with_other, Bytes(0), 2e6, 300e6));
  EXPECT_DOUBLE_EQ(alone, 50e9 / 1.02);
  EXPECT_TRUE(slow_down(alone, with_other, Bytes(5'000'000'000), 100e6, 300e6));
  EXPECT_DOUBLE_EQ(alone, 50e9 / 1.02 * 0.95);
}

TEST(RecordingDelay, GrowsFromTheFourthRecordingOn) {
  RecordingDelay delay;
  for (int i = 0; i < 2; ++i) {
    delay.begin();
    EXPECT_TRUE(delay.is_over());
  }
  for (const int steps : {3, 4, 6, 10}) {
    delay.begin();
    for (int i = 1; i < steps; ++i) {
      delay.count_step();
      EXPECT_FALSE(delay.is_over()) << i << " of " << steps;
    }
    delay.count_step();
    EXPECT_TRUE(delay.is_over()) << steps;
  }
  EXPECT_EQ(delay.steps(), 23U);
}

}  // namespace
}  // namespace spillway
