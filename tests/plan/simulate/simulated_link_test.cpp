#include "plan/simulate/simulated_link.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

constexpr std::int64_t kMegabyte = 1'000'000;

/// A byte a nanosecond alone; half of that out and a quarter back while both ways are busy.
constexpr LinkSpeed kSpeed{1e9, 1e9, 0.5e9, 0.25e9};
constexpr auto kOut = SimulatedLink::kOut;
constexpr auto kBack = SimulatedLink::kBack;

TEST(SimulatedLink, CopiesOneAfterAnother) {
  SimulatedLink link(kSpeed);
  const int first = link.add(kOut, 10 * kMegabyte, 100);
  const int second = link.add(kOut, 20 * kMegabyte, 200);
  EXPECT_DOUBLE_EQ(link.end_of(kOut, second), 30'000'100);
  EXPECT_DOUBLE_EQ(link.end_of(kOut, first), 10'000'100);
}

TEST(SimulatedLink, WaitsUntilACopyIsAskedFor) {
  SimulatedLink link(kSpeed);
  (void)link.add(kOut, 10 * kMegabyte, 0);
  const int later = link.add(kOut, 10 * kMegabyte, 50'000'000);
  EXPECT_DOUBLE_EQ(link.end_of(kOut, later), 60'000'000);
}

TEST(SimulatedLink, IsSlowerWhileBothWaysAreBusy) {
  SimulatedLink link(kSpeed);
  const int early = link.add(kOut, 5 * kMegabyte, 0);
  const int out = link.add(kOut, 20 * kMegabyte, 10'000'000);
  const int back = link.add(kBack, 20 * kMegabyte, 20'000'000, early);
  // Half of `out` goes alone; the rest takes 20 ms, in which 5 MB of `back` come.
  EXPECT_DOUBLE_EQ(link.end_of(kOut, out), 40'000'000);
  EXPECT_DOUBLE_EQ(link.end_of(kBack, back), 55'000'000);
}

TEST(SimulatedLink, ReloadsOnlyWhatWasCopiedOut) {
  SimulatedLink link(kSpeed);
  const int out = link.add(kOut, 10 * kMegabyte, 0);
  const int back = link.add(kBack, 10 * kMegabyte, 1000, out);
  EXPECT_DOUBLE_EQ(link.end_of(kBack, back), 20'000'000);
}

TEST(SimulatedLink, GroupsSmallCopies) {
  SimulatedLink link(kSpeed);
  const int first = link.add(kOut, kMegabyte, 0);
  const int second = link.add(kOut, kMegabyte, 5'000'000);
  EXPECT_EQ(first, second);
  const int large = link.add(kOut, 10 * kMegabyte, 6'000'000);
  EXPECT_NE(large, second);
  EXPECT_DOUBLE_EQ(link.end_of(kOut, first), 7'000'000) << "both, from when the second was there";
  EXPECT_DOUBLE_EQ(link.end_of(kOut, large), 17'000'000);
}

TEST(SimulatedLink, QueuesAGroupThatIsFullOrNeededOrFlushed) {
  SimulatedLink link(kSpeed);
  int last = -1;
  for (int i = 0; i < 16; ++i) last = link.add(kOut, 100, 10 * i);
  EXPECT_NE(link.add(kOut, 100, 200), last) << "sixteen";
  EXPECT_NE(link.add(kOut, 9 * kMegabyte, 300), last + 1) << "a large one";
  const int wanted = link.add(kOut, 100, 400);
  (void)link.end_of(kOut, wanted);
  EXPECT_NE(link.add(kOut, 100, 500), wanted);
  link.hand_over();
  EXPECT_EQ(link.groups(kOut).size(), 5U);
}

TEST(SimulatedLink, CancelsASmallCopyThatIsNotQueued) {
  SimulatedLink link(kSpeed);
  const int first = link.add(kOut, 1000, 0);
  EXPECT_TRUE(link.remove(kOut, first, 1000));
  const int second = link.add(kOut, 500, 100);
  EXPECT_DOUBLE_EQ(link.end_of(kOut, second), 600);
  EXPECT_FALSE(link.remove(kOut, second, 500)) << "it went";
}

TEST(SimulatedLink, TakesNoTimeWithoutASpeed) {
  SimulatedLink link(LinkSpeed{});
  const int out = link.add(kOut, 10 * kMegabyte, 100);
  const int back = link.add(kBack, 10 * kMegabyte, 200, out);
  EXPECT_DOUBLE_EQ(link.end_of(kOut, out), 100);
  EXPECT_DOUBLE_EQ(link.end_of(kBack, back), 200);
}

/// As kSpeed; compute takes half as long again beside copies out, a quarter beside copies back.
LinkSpeed slowing_speed() {
  LinkSpeed speed = kSpeed;
  speed.slows_out = 0.5;
  speed.slows_back = 0.25;
  return speed;
}

TEST(SimulatedLink, SlowsComputeDownWhileItCopies) {
  SimulatedLink link(slowing_speed());
  EXPECT_DOUBLE_EQ(link.compute(0, 5'000'000), 5'000'000);
  (void)link.add(kOut, 12 * kMegabyte, 5'000'000);
  // In the 12 ms of the copy 8 ms of work are done.
  EXPECT_DOUBLE_EQ(link.compute(5'000'000, 20'000'000), 29'000'000);
  EXPECT_DOUBLE_EQ(link.compute(29'000'000, 1'000'000), 30'000'000);
}

TEST(SimulatedLink, AddsUpWhatBothWaysSlowDown) {
  SimulatedLink link(slowing_speed());
  const int early = link.add(kOut, 5 * kMegabyte, 0);
  (void)link.end_of(kOut, early);
  (void)link.add(kOut, 10 * kMegabyte, 10'000'000);
  (void)link.add(kBack, 5 * kMegabyte, 10'000'000, early);
  // Both take 20 ms beside each other.
  EXPECT_DOUBLE_EQ(link.compute(10'000'000, 1'000'000), 11'750'000);
}

TEST(SimulatedLink, SaysWhatWorkWouldTakeAlone) {
  for (const double ns : {1e6, 3e6, 20e6, 24e6}) {
    SimulatedLink forward(slowing_speed());
    SimulatedLink backward(slowing_speed());
    for (SimulatedLink* link : {&forward, &backward}) {
      (void)link->add(kOut, 12 * kMegabyte, 2'000'000);
      (void)link->add(kOut, 4 * kMegabyte + kMegabyte, 9'000'000);
    }
    const double end = forward.compute(1'000'000, ns);
    EXPECT_NEAR(backward.alone(1'000'000, end - 1'000'000), ns, 1e-3) << ns;
  }
}

/// An all-gather asks when a copy ends, and compute continues.
TEST(SimulatedLink, DoesNotSlowWorkBeforeARequestedCopy) {
  SimulatedLink link(slowing_speed());
  const int out = link.add(kOut, 10 * kMegabyte, 0);
  EXPECT_DOUBLE_EQ(link.end_of(kOut, out), 10'000'000);
  EXPECT_DOUBLE_EQ(link.compute(4'000'000, 2'000'000), 6'000'000);
  EXPECT_DOUBLE_EQ(link.compute(6'000'000, 10'000'000), 16'000'000);
}

}  // namespace
}  // namespace spillway
