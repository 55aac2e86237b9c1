#include "spillway/transfer/windows.hpp"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace spillway {
namespace {

using namespace spillway::literals;

TEST(OffloadWindow, ReleasesTheOldestOnceItHoldsTooMuch) {
  OffloadWindow<std::string> window(10_KiB);
  window.push("a", 4_KiB);
  window.push("b", 6_KiB);
  EXPECT_FALSE(window.pop_overdue());
  window.push("c", 5_KiB);
  EXPECT_EQ(window.pop_overdue(), "a");
  EXPECT_EQ(window.pop_overdue(), "b");
  EXPECT_FALSE(window.pop_overdue());
  EXPECT_EQ(window.pending(), 5_KiB);
}

TEST(OffloadWindow, OfZeroBytesReleasesEverythingAtOnce) {
  OffloadWindow<std::string> window(0_B);
  window.push("a", 1_B);
  EXPECT_EQ(window.pop_overdue(), "a");
  EXPECT_FALSE(window.pop_overdue());
}

TEST(OffloadWindow, ReturnsABufferThatBackwardNeedsBeforeItsRelease) {
  OffloadWindow<int> window(1_MiB);
  window.push(1, 1_KiB);
  window.push(2, 2_KiB);
  window.push(3, 4_KiB);
  EXPECT_EQ(window.take([](int item) { return item == 2; }), 2);
  EXPECT_FALSE(window.take([](int item) { return item == 2; }));
  EXPECT_EQ(window.pending(), 5_KiB);
  EXPECT_EQ(window.pop_oldest(), 1);
  EXPECT_EQ(window.pop_oldest(), 3);
  EXPECT_FALSE(window.pop_oldest());
  EXPECT_EQ(window.size(), 0U);
}

TEST(OffloadWindow, ShowsWhatItHoldsOldestFirst) {
  OffloadWindow<int> window(10_B);
  for (int i = 0; i < 4; ++i) window.push(i, 3_B);
  EXPECT_EQ(window.pop_overdue(), 0);
  std::vector<int> seen;
  window.for_each([&seen](int item) { seen.push_back(item); });
  EXPECT_EQ(seen, (std::vector<int>{1, 2, 3}));
}

TEST(OffloadWindow, HoldsItemsThatCanOnlyBeMoved) {
  OffloadWindow<std::unique_ptr<int>> window(0_B);
  window.push(std::make_unique<int>(7), 1_B);
  EXPECT_EQ(**window.pop_overdue(), 7);
}

TEST(ReloadWindow, GivesWhatFitsTheRoomOfACallerThatCounts) {
  ReloadWindow<std::string> window(1_KiB);
  window.append("a", 4_KiB);
  window.append("b", 2_KiB);
  EXPECT_FALSE(window.next_within(3_KiB));  // Not even if nothing is under way, and in order.
  EXPECT_EQ(window.next_within(4_KiB), "a");
  EXPECT_EQ(window.next_within(2_KiB), "b");
  EXPECT_FALSE(window.next_within(1_GiB));
  EXPECT_EQ(window.prefetched(), 6_KiB);
  window.finished(4_KiB);
  EXPECT_EQ(window.prefetched(), 2_KiB);
}

TEST(ReloadWindow, GivesWhatFitsTheRoomAndItsLimit) {
  ReloadWindow<std::string> window(6_KiB);
  for (const char* name : {"a", "b", "c"}) window.append(name, 4_KiB);
  EXPECT_FALSE(window.next_of(3_KiB));
  EXPECT_EQ(window.next_of(4_KiB), "a");
  EXPECT_FALSE(window.next_of(1_GiB));
  window.finished(4_KiB);
  EXPECT_EQ(window.next_of(1_GiB), "b");
}

TEST(ReloadWindow, PrefetchesUpToItsLimit) {
  ReloadWindow<std::string> window(10_KiB);
  for (const char* name : {"a", "b", "c"}) window.append(name, 5_KiB);
  EXPECT_EQ(window.next(), "a");
  EXPECT_EQ(window.next(), "b");
  EXPECT_FALSE(window.next());
  EXPECT_EQ(window.prefetched(), 10_KiB);
  window.finished(5_KiB);
  EXPECT_EQ(window.next(), "c");
  EXPECT_FALSE(window.next());
}

TEST(ReloadWindow, LetsABufferLargerThanItselfThroughAlone) {
  ReloadWindow<std::string> window(1_KiB);
  window.append("large", 1_MiB);
  window.append("small", 1_B);
  EXPECT_EQ(window.next(), "large");
  EXPECT_FALSE(window.next());
  window.finished(1_MiB);
  EXPECT_EQ(window.next(), "small");
}

TEST(ReloadWindow, ContinuesAcrossPasses) {
  ReloadWindow<std::string> window(3_B);
  window.append("pass 1, buffer 2", 1_B);
  window.append("pass 1, buffer 1", 1_B);
  EXPECT_EQ(window.next(), "pass 1, buffer 2");
  EXPECT_EQ(window.next(), "pass 1, buffer 1");
  EXPECT_FALSE(window.next());
  window.append("pass 0, buffer 2", 1_B);
  EXPECT_EQ(window.next(), "pass 0, buffer 2");
  EXPECT_EQ(window.waiting(), 0U);
}

}  // namespace
}  // namespace spillway
