#include "spillway/memory/slab.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "spillway/core/error.hpp"
#include "spillway/core/event_pool.hpp"
#include "spillway/core/host_device.hpp"
#include "spillway/memory/host_system.hpp"
#include "support/counting_device.hpp"
#include "support/error_text.hpp"
#include "support/faulty_device.hpp"
#include "support/forked.hpp"
#include "support/gate.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::error_text;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Whether every page is resident.
bool in_memory(const std::byte* data, Bytes size) {
  std::vector<unsigned char> pages(size.count() / 4096);
  if (::mincore(const_cast<std::byte*>(data), size.count(), pages.data()) != 0) return false;
  return std::all_of(pages.begin(), pages.end(),
                     [](unsigned char page) { return (page & 1) != 0; });
}

class SlabTest : public ::testing::Test {
 protected:
  /// An event recorded on `stream`.
  EventRef mark(Stream& stream) {
    EventRef event = pool_.take();
    stream.record(*event);
    return event;
  }

  HostDevice device_;
  EventPool pool_{device_, Timing::kOff};
  std::unique_ptr<Stream> first_ = device_.make_stream("first");
  std::unique_ptr<Stream> second_ = device_.make_stream("second");
};

TEST_F(SlabTest, BlocksAreAlignedWritableAndTheirOwn) {
  Slab slab(device_, {.capacity = 8_MiB, .chunk = 2_MiB});
  const auto one = slab.allocate(3000_B);
  const auto two = slab.allocate(5_MiB);
  ASSERT_TRUE(one && two);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(one->data()) % 512, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(two->data()) % 512, 0U);
  std::memset(one->data(), 1, one->size().count());
  std::memset(two->data(), 2, two->size().count());
  EXPECT_EQ(one->span().back(), std::byte{1});
  EXPECT_EQ(two->span().front(), std::byte{2});
  EXPECT_EQ(slab.usage().used, 3072_B + 5_MiB);
}

TEST_F(SlabTest, ARetiredBlockComesBackAtOnceWithItsEvent) {
  Slab slab(device_, {.capacity = 2_MiB});
  testing::Gate gate;
  gate.close(*first_);
  auto lease = slab.allocate(2_MiB);
  std::byte* const address = lease->data();
  const EventRef event = mark(*first_);
  lease->retire(event);
  EXPECT_FALSE(event->query());  // Its last reader has not even begun.
  auto again = slab.allocate(2_MiB);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->data(), address);
  EXPECT_EQ(again->pending(), EventList{event});
  again->acquire(*second_);
  EXPECT_TRUE(again->pending().empty());
  bool written = false;
  second_->call("write", [&written] { written = true; });
  EXPECT_FALSE(second_->query());
  gate.open();
  second_->synchronize();
  EXPECT_TRUE(written);
}

TEST_F(SlabTest, ABlockCarriesOnlyTheEventsOfThePartsItCovers) {
  Slab slab(device_, {.capacity = 2_MiB});
  std::vector<Lease> leases;
  for (int i = 0; i < 4; ++i) leases.push_back(std::move(*slab.allocate(1_KiB)));
  std::vector<EventRef> events;
  for (int i = 0; i < 4; ++i) {
    events.push_back(mark(i % 2 == 0 ? *first_ : *second_));
    leases[static_cast<std::size_t>(i)].retire(events.back());
  }
  // [0, 1.5 KiB): all of block 0 and half of block 1.
  const auto low = slab.allocate(1536_B);
  EXPECT_THAT(low->pending(), ::testing::UnorderedElementsAre(events[0], events[1]));
  // [1.5, 2 KiB): the other half of block 1.
  const auto half = slab.allocate(512_B);
  EXPECT_THAT(half->pending(), ::testing::UnorderedElementsAre(events[1]));
  const auto rest = slab.allocate(8_KiB);
  EXPECT_THAT(rest->pending(), ::testing::UnorderedElementsAre(events[2], events[3]));
}

TEST_F(SlabTest, OfSeveralEventsOfOneStreamOnlyTheLatestIsKept) {
  Slab slab(device_, {.capacity = 2_MiB});
  auto one = slab.allocate(1_KiB);
  auto two = slab.allocate(1_KiB);
  const EventRef early = mark(*first_);
  const EventRef late = mark(*first_);
  one->retire(late);
  two->retire(early);
  EXPECT_EQ(slab.allocate(2_KiB)->pending(), EventList{late});
}

TEST_F(SlabTest, ALeaseGivenBackUnusedKeepsItsEvents) {
  Slab slab(device_, {.capacity = 2_MiB});
  const EventRef event = mark(*first_);
  slab.allocate(1_KiB)->retire(event);
  { const auto unused = slab.allocate(1_KiB); }
  EXPECT_EQ(slab.allocate(1_KiB)->pending(), EventList{event});
}

TEST_F(SlabTest, TheSameCallsGiveTheSameAddressesWhateverHasFinished) {
  const auto offsets = [this](bool wait) {
    Slab slab(device_, {.capacity = 4_MiB});
    std::vector<std::ptrdiff_t> found;
    std::vector<Lease> live;
    for (std::size_t i = 0; i < 200; ++i) {
      live.push_back(std::move(*slab.allocate(Bytes(512 + i * 7919 % 9000))));
      found.push_back(live.back().data() - slab.base());
      if (i % 3 == 2) {
        live[live.size() / 2].retire(mark(*first_));
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(live.size() / 2));
        if (wait) first_->synchronize();
      }
    }
    return found;
  };
  EXPECT_EQ(offsets(true), offsets(false));
}

TEST_F(SlabTest, PiecesEndWhereChunksMeet) {
  Slab slab(device_, {.capacity = 8_MiB, .chunk = 2_MiB});
  const auto first = slab.allocate(1_MiB);
  const auto across = slab.allocate(4_MiB);
  std::vector<std::pair<std::uint64_t, Bytes>> pieces;
  across->for_each_piece([&](std::byte* data, std::uint64_t offset, Bytes size) {
    EXPECT_EQ(data, across->data() + offset);
    pieces.emplace_back(offset, size);
  });
  EXPECT_EQ(pieces, (std::vector<std::pair<std::uint64_t, Bytes>>{
                        {0, 1_MiB}, {1 << 20, 2_MiB}, {3 << 20, 1_MiB}}));
}

TEST_F(SlabTest, PinsOnlyWhatIsUsedAndRequested) {
  testing::CountingDevice device(device_);
  Slab slab(device, {.capacity = 64_MiB, .chunk = 4_MiB});
  slab.wait_until_prepared();
  EXPECT_EQ(slab.usage().pinned, 0_B);
  slab.prepare(5_MiB);
  slab.wait_until_prepared();
  EXPECT_EQ(slab.usage().pinned, 8_MiB);
  EXPECT_EQ(device.calls().registrations, 2U);
  const auto lease = slab.allocate(1_MiB);
  EXPECT_EQ(slab.usage().warm_up_waits, 0U);
  const auto large = slab.allocate(20_MiB);
  EXPECT_EQ(slab.usage().warm_up_waits, 1U);
  slab.wait_until_prepared();
  EXPECT_EQ(slab.usage().pinned, 24_MiB);  // 21 MiB in use and half a chunk ahead.
}

TEST_F(SlabTest, ANeverBlockedCallerGetsItsAddressesWithoutARegistrationOfItsOwn) {
  testing::CountingDevice device(device_);
  Slab slab(device, {.capacity = 16_MiB, .chunk = 2_MiB, .prepare = 16_MiB});
  slab.wait_until_prepared();
  const std::uint64_t before = device.calls().registrations;
  for (int i = 0; i < 1000; ++i)
    (void)slab.allocate(Bytes(1 + static_cast<std::uint64_t>(i) * 997));
  EXPECT_EQ(device.calls().registrations, before);
  EXPECT_EQ(slab.usage().warm_up_waits, 0U);
}

TEST_F(SlabTest, TooLargeARequestIsNoRoom) {
  Slab slab(device_, {.capacity = 4_MiB});
  EXPECT_FALSE(slab.allocate(4_MiB + 1_B));
  const auto lease = slab.allocate(3_MiB);
  EXPECT_FALSE(slab.allocate(2_MiB));
  EXPECT_EQ(slab.usage().used, 3_MiB);
}

TEST_F(SlabTest, ACapacityOfZeroIsRefused) {
  EXPECT_EQ(error_text<InvalidArgument>([&] { Slab slab(device_, {.capacity = 0_B}); }),
            "[slab] a capacity of 0 bytes was asked for; give the host memory that offloaded "
            "buffers may take, such as \"64 GiB\"");
}

TEST_F(SlabTest, AnOddChunkIsRefused) {
  EXPECT_EQ(
      error_text<InvalidArgument>([&] { Slab slab(device_, {.capacity = 4_MiB, .chunk = 3_KiB}); }),
      "[slab] chunks of 3.0 KiB were asked for; a chunk is a multiple of 2 MiB");
}

TEST_F(SlabTest, MoreThanTheMachineHasIsRefused) {
  const Bytes wanted = total_host_memory() + 1_GiB;
  EXPECT_EQ(error_text<OutOfMemory>([&] { Slab slab(device_, {.capacity = wanted}); }),
            "[slab] " + to_string(wanted) + " of host memory wanted, " +
                to_string(total_host_memory()) + " is all there is; lower the host limit");
}

TEST_F(SlabTest, AMachineThatCannotPinMemorySaysSoAndWhatWasPinnedStaysUsable) {
  testing::FaultyDevice device(device_, {.failing_registration = 2});
  Slab slab(device, {.capacity = 64_MiB, .chunk = 2_MiB, .prepare = 16_MiB});
  const std::string text = error_text<OutOfMemory>([&] { slab.wait_until_prepared(); });
  EXPECT_THAT(text, StartsWith("[slab] cannot pin 2.0 MiB of host memory after the first 4.0 MiB: "
                               "[register] the pages cannot be locked, as the test wants it; "));
  EXPECT_THAT(text, HasSubstr("lower the host limit"));
  EXPECT_EQ(slab.usage().capacity, 4_MiB);
  EXPECT_EQ(slab.usage().pinned, 4_MiB);
  auto lease = slab.allocate(4_MiB);
  ASSERT_TRUE(lease);
  std::memset(lease->data(), 1, lease->size().count());
  EXPECT_FALSE(slab.allocate(1_B));
  EXPECT_EQ(slab.problem(), text);
}

TEST_F(SlabTest, APartThatCannotBePinnedIsReturnedWithWhatWasTouchedBehindIt) {
  testing::FaultyDevice device(device_, {.failing_registration = 1});
  Slab slab(device, {.capacity = 64_MiB, .chunk = 2_MiB, .prepare = 16_MiB});
  (void)error_text<OutOfMemory>([&] { slab.wait_until_prepared(); });
  EXPECT_TRUE(in_memory(slab.base(), 2_MiB));
  for (const Bytes offset : {2_MiB, 4_MiB, 6_MiB}) {
    EXPECT_FALSE(in_memory(slab.base() + offset.count(), 2_MiB)) << to_string(offset);
  }
}

/// Registers the first chunk only once the one behind it is in memory.
class PatientDevice final : public testing::WrappingDevice {
 public:
  PatientDevice(Device& inner, Bytes chunk) : WrappingDevice(inner), chunk_(chunk) {}

  [[nodiscard]] std::unique_ptr<Stream> make_stream(std::string name) override {
    return inner().make_stream(std::move(name));
  }
  [[nodiscard]] std::unique_ptr<Event> make_event(Timing timing) override {
    return inner().make_event(timing);
  }
  void synchronize() override { inner().synchronize(); }
  void do_register(std::span<std::byte> memory) override {
    if (!std::exchange(asked_, true)) {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!seen_ && std::chrono::steady_clock::now() < deadline) {
        seen_ = in_memory(memory.data() + memory.size(), chunk_);
        std::this_thread::yield();
      }
    }
    WrappingDevice::do_register(memory);
  }

  [[nodiscard]] bool seen() const { return seen_; }

 private:
  Bytes chunk_;
  bool asked_ = false;
  bool seen_ = false;
};

TEST_F(SlabTest, TouchesAChunkWhileTheOneBeforeItIsRegistered) {
  PatientDevice device(device_, 2_MiB);
  Slab slab(device, {.capacity = 8_MiB, .chunk = 2_MiB, .prepare = 8_MiB});
  slab.wait_until_prepared();
  EXPECT_TRUE(device.seen());
  EXPECT_EQ(slab.usage().pinned, 8_MiB);
  EXPECT_EQ(slab.problem(), "");
}

TEST_F(SlabTest, TrimGivesBackWhatIsBeyondAndPinsItAgainWhenItIsNeeded) {
  testing::CountingDevice device(device_);
  Slab slab(device, {.capacity = 64_MiB, .chunk = 2_MiB});
  auto low = slab.allocate(3_MiB);
  { const auto high = slab.allocate(20_MiB); }
  slab.wait_until_prepared();
  EXPECT_EQ(slab.usage().pinned, 24_MiB);
  slab.trim(0_B);
  EXPECT_EQ(slab.usage().pinned, 4_MiB) << "the block in use and half a chunk";
  EXPECT_EQ(device.calls().unregistrations, 10U);
  EXPECT_FALSE(in_memory(slab.base() + (4_MiB).count(), 2_MiB));
  std::memset(low->data(), 1, low->size().count());
  auto again = slab.allocate(20_MiB);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->data() - slab.base(), 3 << 20) << "the address is as without trim()";
  std::memset(again->data(), 2, again->size().count());
  EXPECT_EQ(low->span().back(), std::byte{1});
  slab.wait_until_prepared();
  EXPECT_EQ(slab.usage().pinned, 24_MiB);
}

TEST_F(SlabTest, TrimToItsReachLeavesStepsThatRepeatAsTheyAre) {
  testing::CountingDevice device(device_);
  Slab slab(device, {.capacity = 64_MiB, .chunk = 2_MiB, .prepare = 40_MiB});
  const auto step = [&slab] {
    std::vector<Lease> leases;
    for (int i = 0; i < 5; ++i) leases.push_back(std::move(*slab.allocate(1900_KiB)));
  };
  slab.wait_until_prepared();
  step();
  EXPECT_EQ(slab.take_reach(), 9500_KiB);
  step();
  const Bytes reach = slab.take_reach();
  EXPECT_EQ(slab.take_reach(), 0_B);
  slab.trim(reach);
  EXPECT_EQ(slab.usage().pinned, 12_MiB);
  const std::uint64_t before = device.calls().registrations;
  step();
  slab.wait_until_prepared();
  EXPECT_EQ(device.calls().registrations, before);
  EXPECT_EQ(slab.usage().warm_up_waits, 0U);
}

TEST_F(SlabTest, TrimWaitsForTheLastUsersOfWhatItGivesBack) {
  testing::CountingDevice device(device_);
  Slab slab(device, {.capacity = 64_MiB, .chunk = 2_MiB});
  testing::Gate gate;
  gate.close(*first_);
  auto lease = slab.allocate(8_MiB);
  std::byte* const data = lease->data();
  bool read = false;
  first_->call("read", [&] { read = data[(8_MiB).count() - 1] == std::byte{0}; });
  lease->retire(mark(*first_));
  std::thread trimming([&slab] { slab.trim(0_B); });
  // The chunk that was ahead of the block had no users.
  while (slab.usage().pinned > 8_MiB) std::this_thread::yield();
  // Somebody who gets a part of it meanwhile has the event to wait for.
  const auto low = slab.allocate(1_MiB);
  EXPECT_FALSE(low->pending().empty());
  EXPECT_GE(slab.usage().pinned, 8_MiB);
  gate.open();
  trimming.join();
  first_->synchronize();
  EXPECT_TRUE(read) << "a page that was given back could not be read";
  EXPECT_EQ(slab.usage().pinned, 2_MiB);
}

TEST_F(SlabTest, TrimDropsWhatWasBeingPreparedToo) {
  Slab slab(device_, {.capacity = 64_MiB, .chunk = 2_MiB, .prepare = 64_MiB});
  slab.trim(0_B);
  EXPECT_EQ(slab.usage().pinned, 0_B);
  for (const Bytes offset : {0_MiB, 2_MiB, 4_MiB, 62_MiB}) {
    EXPECT_FALSE(in_memory(slab.base() + offset.count(), 2_MiB)) << to_string(offset);
  }
}

TEST_F(SlabTest, GivesOutAndTrimsAtTheSameTime) {
  Slab slab(device_, {.capacity = 64_MiB, .chunk = 2_MiB});
  std::vector<std::thread> threads;
  for (int worker = 0; worker < 3; ++worker) {
    threads.emplace_back([&slab, worker] {
      for (std::size_t i = 0; i < 60; ++i) {
        auto lease = slab.allocate(Bytes(100'000 + i * 77'777 % 5'000'000));
        ASSERT_TRUE(lease);
        std::memset(lease->data(), worker, lease->size().count());
        EXPECT_EQ(lease->span().back(), std::byte(static_cast<unsigned char>(worker)));
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    slab.trim(Bytes(static_cast<std::uint64_t>(i % 5) << 20U));
    std::this_thread::yield();
  }
  for (std::thread& each : threads) each.join();
  slab.trim(0_B);
  EXPECT_EQ(slab.usage().pinned, 0_B);
}

TEST_F(SlabTest, RetriesWhatCouldNotBePinnedLessAndLessOften) {
  testing::FaultyDevice device(device_, {.failing_registration = 2, .failing_registrations = 3});
  Slab slab(device, {.capacity = 64_MiB, .chunk = 2_MiB, .prepare = 16_MiB});
  const std::string text = error_text<OutOfMemory>([&] { slab.wait_until_prepared(); });
  int calls = 0;
  for (const int wanted : {1, 2, 4}) {
    for (int i = 1; i <= wanted; ++i, ++calls) {
      EXPECT_FALSE(slab.allocate(5_MiB)) << calls;
      EXPECT_EQ(slab.problem(), text) << calls;
      slab.retry();
    }
    if (wanted < 4) {
      EXPECT_THROW(slab.wait_until_prepared(), OutOfMemory);
    }
  }
  slab.wait_until_prepared();
  EXPECT_EQ(slab.problem(), "");
  EXPECT_EQ(slab.usage().capacity, 64_MiB);
  EXPECT_EQ(slab.usage().pinned, 16_MiB);
  auto lease = slab.allocate(40_MiB);
  ASSERT_TRUE(lease);
  std::memset(lease->data(), 1, lease->size().count());
}

TEST_F(SlabTest, IsWithoutAProblemOnceNothingIsWantedThatCouldNotBePinned) {
  testing::FaultyDevice device(device_, {.failing_registration = 2});
  Slab slab(device, {.capacity = 64_MiB, .chunk = 2_MiB, .prepare = 16_MiB});
  EXPECT_THROW(slab.wait_until_prepared(), OutOfMemory);
  slab.trim(1_MiB);
  EXPECT_EQ(slab.problem(), "");
  EXPECT_EQ(slab.usage().pinned, 2_MiB);
  EXPECT_TRUE(slab.allocate(30_MiB));
}

TEST_F(SlabTest, ABlockThatFoundNoRoomLeavesTheLastUsersOfWhatItWouldHaveTaken) {
  testing::FaultyDevice device(device_, {.failing_registration = 1});
  Slab slab(device, {.capacity = 64_MiB, .chunk = 2_MiB});
  const EventRef event = mark(*first_);
  slab.allocate(1_MiB)->retire(event);
  EXPECT_FALSE(slab.allocate(4_MiB));
  EXPECT_EQ(slab.allocate(1_MiB)->pending(), EventList{event});
}

TEST_F(SlabTest, AWaitingAllocationThatCannotBePinnedIsNoRoom) {
  testing::FaultyDevice device(device_, {.failing_registration = 0});
  Slab slab(device, {.capacity = 64_MiB, .chunk = 2_MiB});
  EXPECT_FALSE(slab.allocate(1_MiB));
  EXPECT_FALSE(slab.allocate(1_B));
  EXPECT_EQ(slab.usage().used, 0_B);
}

TEST_F(SlabTest, AndItsLeasesMayBeDestroyedInAChildMadeByFork) {
  auto slab = std::make_unique<Slab>(
      device_, SlabOptions{.capacity = 8_MiB, .chunk = 2_MiB, .prepare = 4_MiB});
  slab->wait_until_prepared();
  auto lease = slab->allocate(1_MiB);
  ASSERT_TRUE(lease);
  EXPECT_EQ(testing::in_child([&] {
              lease.reset();
              slab.reset();
              return 0;
            }),
            "exited with 0");
  EXPECT_EQ(slab->usage().used, 1_MiB);
}

}  // namespace
}  // namespace spillway
