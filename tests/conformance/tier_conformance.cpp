#include "conformance/tier_conformance.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "spillway/core/error.hpp"
#include "spillway/core/event_pool.hpp"
#include "spillway/core/host_device.hpp"
#include "support/error_text.hpp"
#include "support/random_cases.hpp"

namespace spillway::testing {
namespace {

using namespace spillway::literals;

TEST_P(TierConformance, GivesAlignedBlocksOfTheWantedSize) {
  HostDevice device;
  const auto tier = GetParam().make(device, 4_MiB);
  for (const Bytes size : {1_B, 511_B, 512_B, 513_B, 1_MiB}) {
    const auto lease = tier->allocate(size);
    ASSERT_TRUE(lease);
    EXPECT_EQ(lease->size(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(lease->data()) % 512, 0U);
  }
}

TEST_P(TierConformance, AnswersNoRoomAsAValueAndGoesOnWhenRoomIsBack) {
  HostDevice device;
  const auto tier = GetParam().make(device, 4_MiB);
  EXPECT_FALSE(tier->allocate(tier->capacity() + 1_B));
  auto all = tier->allocate(tier->capacity());
  ASSERT_TRUE(all);
  EXPECT_FALSE(tier->allocate(1_B));
  all.reset();
  EXPECT_TRUE(tier->allocate(tier->capacity()));
}

TEST_P(TierConformance, SaysBeforehandWhatCanNeverFit) {
  HostDevice device;
  const auto tier = GetParam().make(device, 4_MiB);
  tier->require_room_for(tier->capacity());
  EXPECT_EQ(error_text<OutOfMemory>([&] { tier->require_room_for(6_MiB); }),
            "[" + tier->name() +
                "] a buffer of 6.0 MiB does not fit into 4.0 MiB; raise the limit to at least 6.0 "
                "MiB or keep such buffers on the device");
}

TEST_P(TierConformance, HandsARetiredBlockOnWithItsEvent) {
  HostDevice device;
  const auto tier = GetParam().make(device, 2_MiB);
  EventPool pool(device, Timing::kOff);
  const auto stream = device.make_stream("s");
  const EventRef event = pool.take();
  stream->record(*event);
  tier->allocate(tier->capacity())->retire(event);
  EXPECT_EQ(tier->allocate(tier->capacity())->pending(), EventList{event});
}

TEST_P(TierConformance, AMovedLeaseGivesItsBlockBackOnce) {
  HostDevice device;
  const auto tier = GetParam().make(device, 2_MiB);
  Lease lease = *tier->allocate(tier->capacity());
  Lease other = std::move(lease);
  EXPECT_FALSE(lease);  // NOLINT(bugprone-use-after-move): that it is empty is the promise.
  EXPECT_FALSE(tier->allocate(1_B));
  other = Lease();
  EXPECT_TRUE(tier->allocate(tier->capacity()));
}

/// 100,000 random calls against a simple model: contents by pattern, no two leases overlap, every
/// event of a retired block is handed on, and all is one block again at the end.
TEST_P(TierConformance, HoldsUnderRandomCalls) {
  HostDevice device;
  const auto tier = GetParam().make(device, 2_MiB);
  EventPool pool(device, Timing::kOff);
  const std::vector<std::unique_ptr<Stream>> streams = [&device] {
    std::vector<std::unique_ptr<Stream>> made;
    for (int i = 0; i < 3; ++i) made.push_back(device.make_stream("s"));
    return made;
  }();

  struct Held {
    Lease lease;
    int pattern = 0;
  };
  std::map<std::byte*, Held> live;                           // The model: by address.
  std::map<std::byte*, std::pair<Bytes, EventRef>> retired;  // Free parts and who still reads them.
  std::mt19937_64 random(20240229);

  const auto check_events = [&retired](const Lease& lease) {
    // Every part of this block that was retired must have brought its event, or a later one of the
    // same stream.
    for (auto part = retired.begin(); part != retired.end();) {
      const auto [size, event] = part->second;
      const bool overlaps = part->first < lease.data() + lease.size().count() &&
                            lease.data() < part->first + size.count();
      if (!overlaps) {
        ++part;
        continue;
      }
      const StreamPoint wanted = event->point();
      EXPECT_TRUE(std::any_of(lease.pending().begin(), lease.pending().end(), [&](const auto& got) {
        return got->point().stream == wanted.stream && got->point().order >= wanted.order;
      }));
      part = retired.erase(part);  // The rest of it is checked by the allocator's own tests.
    }
  };

  const int calls = cases_of(100'000);
  for (int call = 0; call < calls; ++call) {
    const bool allocate = live.empty() || random() % 100 < 52;
    if (allocate) {
      const Bytes size(random() % 8 == 0 ? 1 + random() % 200'000 : 1 + random() % 6'000);
      auto lease = tier->allocate(size);
      if (!lease) continue;
      const auto after = live.lower_bound(lease->data());
      if (after != live.end()) {
        ASSERT_LE(lease->data() + size.count(), after->first);
      }
      if (after != live.begin()) {
        const Held& before = std::prev(after)->second;
        ASSERT_LE(before.lease.data() + before.lease.size().count(), lease->data());
      }
      check_events(*lease);
      lease->acquire(*streams[0]);
      const int pattern = static_cast<int>(random() % 256);
      std::memset(lease->data(), pattern, size.count());
      std::byte* const data = lease->data();
      live.emplace(data, Held{std::move(*lease), pattern});
      continue;
    }
    auto chosen = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
    Held held = std::move(chosen->second);
    live.erase(chosen);
    ASSERT_TRUE(std::all_of(held.lease.span().begin(), held.lease.span().end(),
                            [&](std::byte b) { return std::to_integer<int>(b) == held.pattern; }));
    if (random() % 2 == 0) {
      const EventRef event = pool.take();
      streams[random() % streams.size()]->record(*event);
      retired[held.lease.data()] = {held.lease.size(), event};
      held.lease.retire(event);
    }
  }
  live.clear();
  EXPECT_TRUE(tier->allocate(tier->capacity())) << "free parts were not joined again";
}

TEST_P(TierConformance, ManyThreadsMayCallAtOnce) {
  HostDevice device;
  const auto tier = GetParam().make(device, 4_MiB);
  const auto work = [&tier](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<Lease, int>> live;
    for (int i = 0; i < 2'000; ++i) {
      if (auto lease = tier->allocate(Bytes(1 + random() % 5'000))) {
        const int pattern = static_cast<int>(random() % 256);
        std::memset(lease->data(), pattern, lease->size().count());
        live.emplace_back(std::move(*lease), pattern);
      }
      if (live.size() > 50) {
        const auto& [lease, pattern] = live[random() % live.size()];
        EXPECT_EQ(std::to_integer<int>(lease.span().front()), pattern);
        EXPECT_EQ(std::to_integer<int>(lease.span().back()), pattern);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(random() % live.size()));
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
  }
  EXPECT_TRUE(tier->allocate(tier->capacity()));
}

}  // namespace
}  // namespace spillway::testing
