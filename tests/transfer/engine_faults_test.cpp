/// What the engine does when the device refuses or fails copies.
#include <algorithm>

#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "spillway/core/host_device.hpp"
#include "spillway/memory/counting_tier.hpp"
#include "spillway/memory/host_tier.hpp"
#include "spillway/memory/slab.hpp"
#include "spillway/transfer/engine.hpp"
#include "support/error_text.hpp"
#include "support/faulty_device.hpp"
#include "support/gate.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::error_text;
using testing::Gate;

constexpr Bytes kFaultySize = 16_KiB;

TEST(EngineFaults, ARefusedOffloadLeavesNothingBehind) {
  HostDevice host;
  testing::FaultyDevice device(host, {.fault = [](std::uint64_t copy) {
                                 return copy == 1 ? testing::Fault::kRefuse : testing::Fault::kNone;
                               }});
  Slab slab(device, {.capacity = 4_MiB, .chunk = 2_MiB});
  HostTier host_tier(slab);
  CountingTier tier(host_tier);
  TransferEngine engine(device, tier, {.group = 1_MiB});
  const auto compute = device.make_stream("compute");
  const DeviceBuffer source = device.allocate(3_MiB);  // Two pieces; the second one is refused.
  compute->fill(source.data(), std::byte{1}, source.size());
  EXPECT_EQ(error_text<DeviceError>([&] { (void)engine.offload(source.span(), *compute); }),
            "[copy] refused, as the test wants it");
  EXPECT_EQ(tier.counts().leases, 0U);
  EXPECT_EQ(engine.totals().offloads, 0U);
  EXPECT_EQ(engine.totals().live, 0U);
  compute->fill(source.data(), std::byte{2}, source.size());
  Ticket ticket = *engine.offload(source.span(), *compute);
  engine.release(ticket, *compute);
  compute->fill(source.data(), std::byte{0xEE}, source.size());
  engine.reload(ticket, source.span(), *compute);
  engine.ready(ticket, *compute);
  compute->synchronize();
  EXPECT_TRUE(std::all_of(source.span().begin(), source.span().end(),
                          [](std::byte each) { return each == std::byte{2}; }));
}

TEST(EngineFaults, ARefusedGroupIsReportedToEachOfItsTickets) {
  HostDevice host;
  testing::FaultyDevice device(host, {.fault = [](std::uint64_t copy) {
                                 return copy == 1 ? testing::Fault::kRefuse : testing::Fault::kNone;
                               }});
  Slab slab(device, {.capacity = 2_MiB});
  HostTier host_tier(slab);
  CountingTier tier(host_tier);
  TransferEngine engine(device, tier, {.group = 1_MiB});
  const auto compute = device.make_stream("compute");
  const DeviceBuffer source = device.allocate(4_KiB);
  compute->fill(source.data(), std::byte{5}, 4_KiB);
  {
    Ticket first = *engine.offload(source.span(), *compute);
    Ticket second = *engine.offload(source.span(), *compute);
    const std::string text = "[copy] refused, as the test wants it";
    EXPECT_EQ(error_text<DeviceError>([&] { engine.release(first, *compute); }), text);
    EXPECT_FALSE(first.released());
    EXPECT_EQ(error_text<DeviceError>([&] { engine.reload(second, source.span(), *compute); }),
              text);
  }
  EXPECT_EQ(tier.counts().leases, 0U);
  Ticket ticket = *engine.offload(source.span(), *compute);
  engine.release(ticket, *compute);
  compute->fill(source.data(), std::byte{0xEE}, 4_KiB);
  engine.reload(ticket, source.span(), *compute);
  engine.ready(ticket, *compute);
  compute->synchronize();
  EXPECT_EQ(source.span().back(), std::byte{5});
}

/// A copy of two pieces, of which the second is refused while the first has not begun.
TEST(EngineFaults, WhatWasQueuedOfARefusedCopyIsWaitedFor) {
  HostDevice host;
  testing::FaultyDevice device(host, {.hold_back = 0, .fault = [](std::uint64_t copy) {
                                        return copy == 2 ? testing::Fault::kRefuse
                                                         : testing::Fault::kNone;
                                      }});
  Slab slab(device, {.capacity = 8_MiB, .chunk = 2_MiB});
  HostTier tier(slab);
  TransferEngine engine(device, tier, {.group = 1_MiB});
  const auto producer = device.make_stream("producer");
  const auto slow = device.make_stream("slow");
  const DeviceBuffer source = device.allocate(3_MiB);
  const Lease filler = *tier.allocate(1_MiB);
  Gate gate;
  gate.close(*slow);
  const std::optional<Ticket> blocker = engine.offload(source.span().first(1 << 20), *slow);
  EXPECT_THROW((void)engine.offload(source.span(), *producer), DeviceError);
  EXPECT_FALSE(producer->query()) << "the producer may overwrite what the first piece still reads";
  EXPECT_FALSE(tier.allocate(3_MiB)->pending().empty()) << "others may write where it still writes";
  gate.open();
  producer->synchronize();
  slow->synchronize();
}

TEST(EngineFaults, WhatWasQueuedOfARefusedReloadIsWaitedFor) {
  HostDevice host;
  testing::FaultyDevice device(host, {.hold_back = 0, .fault = [](std::uint64_t copy) {
                                        return copy == 5 ? testing::Fault::kRefuse
                                                         : testing::Fault::kNone;
                                      }});
  Slab slab(device, {.capacity = 8_MiB, .chunk = 2_MiB});
  HostTier tier(slab);
  TransferEngine engine(device, tier, {.group = 1_MiB});
  const auto consumer = device.make_stream("consumer");
  const auto slow = device.make_stream("slow");
  const DeviceBuffer memory = device.allocate(3_MiB);
  const DeviceBuffer first = device.allocate(1_MiB);
  const DeviceBuffer second = device.allocate(3_MiB);
  const Lease filler = *tier.allocate(1_MiB);
  Ticket blocker = *engine.offload(memory.span().first(1 << 20), *consumer);  // Copy 0.
  Ticket ticket = *engine.offload(memory.span(), *consumer);                  // Copies 1 and 2.
  Gate gate;
  gate.close(*slow);
  engine.reload(blocker, first.span(), *slow);  // Copy 3, behind the gate.
  EXPECT_THROW(engine.reload(ticket, second.span(), *consumer), DeviceError);
  EXPECT_FALSE(consumer->query()) << "the consumer may use what copy 4 still writes";
  EXPECT_THROW(engine.ready(ticket, *consumer), DeviceError);
  gate.open();
  consumer->synchronize();
  slow->synchronize();
}

TEST(EngineFaults, ACopyThatFailsOnTheWayIsThrownWhereItsResultIsWaitedFor) {
  HostDevice host;
  testing::FaultyDevice device(host, {.fault = [](std::uint64_t copy) {
                                 return copy == 0 ? testing::Fault::kFailLater
                                                  : testing::Fault::kNone;
                               }});
  Slab slab(device, {.capacity = 2_MiB});
  HostTier tier(slab);
  TransferEngine engine(device, tier, {.group = 1_MiB});
  const auto compute = device.make_stream("compute");
  const DeviceBuffer source = device.allocate(kFaultySize);
  {
    Ticket ticket = *engine.offload(source.span(), *compute);
    engine.release(ticket, *compute);
    engine.reload(ticket, source.span(), *compute);
    engine.ready(ticket, *compute);
    EXPECT_EQ(error_text<DeviceError>([&] { compute->synchronize(); }),
              "[copy] failed on stream \"copy out\": as the test wants it");
  }
  EXPECT_EQ(engine.totals().live, 0U);
}

}  // namespace
}  // namespace spillway
