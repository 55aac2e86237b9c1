#include <vector>

#include <gtest/gtest.h>

#include "conformance/tier_conformance.hpp"
#include "spillway/core/error.hpp"
#include "spillway/core/host_device.hpp"
#include "spillway/memory/counting_tier.hpp"
#include "spillway/memory/host_tier.hpp"
#include "spillway/memory/limited_tier.hpp"
#include "support/error_text.hpp"
#include "support/tracing_tier.hpp"

namespace spillway {
namespace {

using testing::TierEvent;
using testing::TracingTier;

using namespace spillway::literals;
using testing::error_text;
using testing::TierCase;
using testing::TierConformance;

/// A host tier with its slab.
struct OwnedHostTier {
  Slab slab;
  HostTier tier;
  OwnedHostTier(Device& device, Bytes capacity)
      : slab(device, {.capacity = capacity, .chunk = 2_MiB}), tier(slab) {}
};

/// A wrapper with the host tier under it.
template <typename Wrapper, typename... Arguments>
std::shared_ptr<Tier> wrapped(Device& device, Bytes capacity, Arguments... arguments) {
  struct Both {
    OwnedHostTier host;
    Wrapper wrapper;
    Both(Device& on, Bytes size, Arguments... rest) : host(on, size), wrapper(host.tier, rest...) {}
  };
  auto both = std::make_shared<Both>(device, capacity, arguments...);
  return {both, &both->wrapper};
}

/// Everything at once, as a session stacks it.
struct Stack {
  OwnedHostTier host;
  LimitedTier limited;
  CountingTier counting;
  TracingTier tracing;
  Stack(Device& device, Bytes capacity)
      : host(device, capacity + 2_MiB),
        limited(host.tier, capacity),
        counting(limited),
        tracing(counting, [](const TierEvent&) {}) {}
};

INSTANTIATE_TEST_SUITE_P(
    Tiers, TierConformance,
    ::testing::Values(TierCase{"Host",
                               [](Device& device, Bytes capacity) -> std::shared_ptr<Tier> {
                                 auto both = std::make_shared<OwnedHostTier>(device, capacity);
                                 return {both, &both->tier};
                               }},
                      TierCase{"Limited",
                               [](Device& device, Bytes capacity) {
                                 return wrapped<LimitedTier>(device, capacity, capacity);
                               }},
                      TierCase{"Counting",
                               [](Device& device, Bytes capacity) {
                                 return wrapped<CountingTier>(device, capacity);
                               }},
                      TierCase{"Tracing",
                               [](Device& device, Bytes capacity) {
                                 return wrapped<TracingTier>(
                                     device, capacity,
                                     TracingTier::Observer([](const TierEvent&) {}));
                               }},
                      TierCase{"Stacked",
                               [](Device& device, Bytes capacity) -> std::shared_ptr<Tier> {
                                 auto stack = std::make_shared<Stack>(device, capacity);
                                 return {stack, &stack->tracing};
                               }}),
    testing::tier_case_name);

TEST(LimitedTier, HoldsItsLimitBelowTheInnerOne) {
  HostDevice device;
  OwnedHostTier host(device, 8_MiB);
  LimitedTier tier(host.tier, 3_MiB);
  EXPECT_EQ(tier.capacity(), 3_MiB);
  const auto two = tier.allocate(2_MiB);
  EXPECT_FALSE(tier.allocate(2_MiB));
  EXPECT_TRUE(tier.allocate(1_MiB));
  EXPECT_TRUE(host.tier.allocate(2_MiB));
}

TEST(LimitedTier, AFullInnerTierCostsItNothing) {
  HostDevice device;
  OwnedHostTier host(device, 2_MiB);
  LimitedTier tier(host.tier, 4_MiB);
  EXPECT_EQ(tier.capacity(), 2_MiB);
  auto outside = host.tier.allocate(2_MiB);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(tier.allocate(1_MiB));
  outside.reset();
  EXPECT_TRUE(tier.allocate(2_MiB));
}

TEST(LimitedTier, RefusesALimitOfZero) {
  HostDevice device;
  OwnedHostTier host(device, 2_MiB);
  EXPECT_EQ(
      error_text<InvalidArgument>([&] { const LimitedTier tier(host.tier, 0_B); }),
      "[limited tier] a limit of 0 bytes was given for the host tier; give at least one byte, "
      "or leave the tier out to keep everything");
}

TEST(CountingTier, CountsWhatIsHeldAndWhatFailed) {
  HostDevice device;
  OwnedHostTier host(device, 2_MiB);
  CountingTier tier(host.tier);
  {
    const auto one = tier.allocate(1_MiB);
    const auto two = tier.allocate(500_B);
    EXPECT_FALSE(tier.allocate(1_MiB));
    const TierCounts counts = tier.counts();
    EXPECT_EQ(counts.current, 1_MiB + 500_B);
    EXPECT_EQ(counts.leases, 2U);
    EXPECT_EQ(counts.failures, 1U);
  }
  const TierCounts counts = tier.counts();
  EXPECT_EQ(counts.current, 0_B);
  EXPECT_EQ(counts.peak, 1_MiB + 500_B);
  EXPECT_EQ(counts.leases, 0U);
  EXPECT_EQ(counts.allocations, 2U);
}

TEST(TracingTier, RecordsEveryCallInOrder) {
  HostDevice device;
  OwnedHostTier host(device, 2_MiB);
  std::vector<TierEvent> events;
  TracingTier tier(host.tier, [&events](const TierEvent& event) { events.push_back(event); });
  const std::byte* data = nullptr;
  {
    const auto lease = tier.allocate(2_MiB);
    data = lease->data();
    EXPECT_FALSE(tier.allocate(1_B));
  }
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].kind, TierEvent::Kind::kAllocate);
  EXPECT_EQ(events[0].data, data);
  EXPECT_EQ(events[1].kind, TierEvent::Kind::kNoRoom);
  EXPECT_EQ(events[1].size, 1_B);
  EXPECT_EQ(events[2].kind, TierEvent::Kind::kFree);
  EXPECT_EQ(events[2].data, data);
  EXPECT_EQ(events[2].size, 2_MiB);
  EXPECT_EQ(events[2].sequence, 2U);
}

}  // namespace
}  // namespace spillway
