#include "spillway/transfer/engine.hpp"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine_fixture.hpp"
#include "spillway/core/error.hpp"
#include "spillway/core/host_device.hpp"
#include "spillway/memory/counting_tier.hpp"
#include "spillway/memory/host_tier.hpp"
#include "spillway/memory/slab.hpp"
#include "spillway/transfer/windows.hpp"
#include "support/counting_device.hpp"
#include "support/error_text.hpp"
#include "support/gate.hpp"
#include "support/manual_clock.hpp"
#include "support/tracing_tier.hpp"

namespace spillway {
namespace {

using testing::TierEvent;
using testing::TracingTier;

using namespace spillway::literals;
using testing::EngineTest;
using testing::error_text;
using testing::Gate;
using testing::kSize;

TEST_F(EngineTest, ReloadsABufferUnchanged) {
  const DeviceBuffer source = filled(7);
  Ticket ticket = *engine_.offload(source.span(), *compute_);
  EXPECT_EQ(ticket.size(), kSize);
  EXPECT_FALSE(ticket.released());
  engine_.release(ticket, *compute_);
  EXPECT_TRUE(ticket.released());
  poison(source);
  const DeviceBuffer destination = device_.allocate(kSize);
  poison(destination);
  EXPECT_FALSE(ticket.reloading());
  engine_.reload(ticket, destination.span(), *compute_);
  EXPECT_TRUE(ticket.reloading());
  engine_.ready(ticket, *compute_);
  compute_->synchronize();
  EXPECT_TRUE(holds(destination, 7));
  EXPECT_TRUE(holds(source, 0xEE));
}

TEST_F(EngineTest, CopiesOutOnlyAfterTheProducersWork) {
  Gate gate;
  gate.close(*compute_);
  const DeviceBuffer source = filled(7);
  Ticket ticket = *engine_.offload(source.span(), *compute_);
  const DeviceBuffer destination = device_.allocate(kSize);
  const auto other = device_.make_stream("other");
  engine_.reload(ticket, destination.span(), *other);  // Before its offload has even begun.
  engine_.ready(ticket, *other);
  gate.open();
  other->synchronize();
  EXPECT_TRUE(holds(destination, 7));
  compute_->synchronize();
}

TEST_F(EngineTest, ReleaseHoldsTheConsumerUntilTheCopyIsDone) {
  const DeviceBuffer source = filled(3);
  compute_->synchronize();
  Gate gate;
  const auto producer = device_.make_stream("producer");
  gate.close(*producer);
  Ticket ticket = *engine_.offload(source.span(), *producer);
  engine_.release(ticket, *compute_);
  poison(source);
  EXPECT_FALSE(compute_->query());
  EXPECT_TRUE(holds(source, 3));
  gate.open();
  const DeviceBuffer destination = device_.allocate(kSize);
  engine_.reload(ticket, destination.span(), *compute_);
  engine_.ready(ticket, *compute_);
  compute_->synchronize();
  EXPECT_TRUE(holds(destination, 3));
}

TEST_F(EngineTest, MayBeReloadedSeveralTimes) {
  const DeviceBuffer source = filled(9);
  Ticket ticket = *engine_.offload(source.span(), *compute_);
  engine_.release(ticket, *compute_);
  poison(source);
  std::vector<DeviceBuffer> destinations;
  for (int i = 0; i < 3; ++i) {
    destinations.push_back(device_.allocate(kSize));
    engine_.reload(ticket, destinations.back().span(), *compute_);
  }
  engine_.ready(ticket, *compute_);
  compute_->synchronize();
  for (const DeviceBuffer& each : destinations) EXPECT_TRUE(holds(each, 9));
  EXPECT_EQ(engine_.totals().reloads, 3U);
  EXPECT_EQ(engine_.totals().bytes_back, kSize * 3);
}

TEST_F(EngineTest, MovesABufferThatSpansChunks) {
  const Bytes large = 3_MiB;
  const DeviceBuffer source = filled(5, large);
  Ticket ticket = *engine_.offload(source.span(), *compute_);
  engine_.release(ticket, *compute_);
  poison(source);
  engine_.reload(ticket, source.span(), *compute_);
  engine_.ready(ticket, *compute_);
  compute_->synchronize();
  EXPECT_TRUE(holds(source, 5));
  EXPECT_EQ(device_.calls().copies, 4U);  // Two pieces each way: the slab has a seam at 2 MiB.
}

TEST_F(EngineTest, AFullTierIsAnAnswerAndIsCounted) {
  const DeviceBuffer source = filled(1, 3_MiB);
  std::optional<Ticket> first = engine_.offload(source.span(), *compute_);
  EXPECT_TRUE(first);
  EXPECT_FALSE(engine_.offload(source.span(), *compute_));
  EXPECT_EQ(engine_.totals().no_room, 1U);
  EXPECT_EQ(engine_.totals().offloads, 1U);
  first.reset();
  EXPECT_TRUE(engine_.offload(source.span(), *compute_));
  compute_->synchronize();  // It waits for the copy of the ticket that was dropped.
}

TEST_F(EngineTest, ADroppedTicketMakesItsStreamWaitAndItsBlockIsUsedAgainSafely) {
  Gate gate;
  const auto producer = device_.make_stream("producer");
  const DeviceBuffer source = filled(4);
  compute_->synchronize();
  gate.close(*producer);
  { const std::optional<Ticket> dropped = engine_.offload(source.span(), *producer); }
  EXPECT_EQ(engine_.totals().cancelled, 1U);
  EXPECT_EQ(tier_.counts().leases, 0U);
  // The producer may overwrite the source now: it waits for the copy that still reads it.
  producer->fill(source.data(), std::byte{0xEE}, kSize);
  EXPECT_TRUE(holds(source, 4));
  // The same block again, while its first copy has not begun.
  const DeviceBuffer next = filled(6);
  Ticket ticket = *engine_.offload(next.span(), *compute_);
  EXPECT_EQ(slab_.usage().footprint, kSize);
  gate.open();
  engine_.release(ticket, *compute_);
  const DeviceBuffer destination = device_.allocate(kSize);
  engine_.reload(ticket, destination.span(), *compute_);
  engine_.ready(ticket, *compute_);
  compute_->synchronize();
  producer->synchronize();
  EXPECT_TRUE(holds(destination, 6));
}

TEST_F(EngineTest, ATicketDroppedDuringItsReloadProtectsTheDestination) {
  const DeviceBuffer source = filled(4);
  const DeviceBuffer destination = device_.allocate(kSize);
  {
    Ticket ticket = *engine_.offload(source.span(), *compute_);
    engine_.release(ticket, *compute_);
    engine_.reload(ticket, destination.span(), *compute_);
  }
  compute_->fill(destination.data(), std::byte{1}, kSize);  // Must come after the copy back.
  compute_->synchronize();
  EXPECT_TRUE(holds(destination, 1));
}

TEST_F(EngineTest, OnceWarmItNeverSynchronisesPollsOrMakesAnything) {
  const DeviceBuffer buffer = filled(1);
  const auto step = [&] {
    std::vector<Ticket> tickets;
    for (int i = 0; i < 20; ++i) {
      tickets.push_back(*engine_.offload(buffer.span(), *compute_));
      engine_.release(tickets.back(), *compute_);
    }
    for (auto ticket = tickets.rbegin(); ticket != tickets.rend(); ++ticket) {
      engine_.reload(*ticket, buffer.span(), *compute_);
      engine_.ready(*ticket, *compute_);
      *ticket = Ticket();
    }
  };
  slab_.wait_until_prepared();
  for (int i = 0; i < 3; ++i) step();
  const testing::DeviceCalls& calls = device_.calls();
  const std::uint64_t events = calls.events;
  const std::uint64_t streams = calls.streams;
  const std::uint64_t registrations = calls.registrations;
  const std::uint64_t allocations = calls.allocations;
  const std::uint64_t waits = calls.waits;
  const std::uint64_t records = calls.records;
  const std::uint64_t copies = calls.copies;
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(calls.queries, 0U);
  EXPECT_EQ(calls.synchronizes, 0U);
  EXPECT_EQ(calls.events, events);
  EXPECT_EQ(calls.streams, streams);
  EXPECT_EQ(calls.registrations, registrations);
  EXPECT_EQ(calls.allocations, allocations);
  // And no call too many: a copy, two records and two waits each way for each buffer, plus one wait
  // a step, of the stream out for the last copy back: it implies the ones for the blocks' other
  // users.
  EXPECT_EQ(calls.copies - copies, 10U * 20U * 2U);
  EXPECT_EQ(calls.records - records, 10U * 20U * 4U);
  EXPECT_EQ(calls.waits - waits, 10U * (20U * 4U + 1U));
  compute_->synchronize();
}

TEST_F(EngineTest, SmallCopiesAreGrouped) {
  const testing::DeviceCalls& calls = device_.calls();
  const DeviceBuffer buffer = filled(1, 64_KiB);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 16; ++i) tickets.push_back(*engine_.offload(buffer.span(), *compute_));
  EXPECT_EQ(calls.copies, 16U);  // The group of 1 MiB is full.
  EXPECT_EQ(calls.batches, 1U);
  EXPECT_EQ(calls.records, 17U);  // The producer's point for each copy, and one end for all.
  EXPECT_EQ(calls.waits, 1U);
  for (Ticket& ticket : tickets) engine_.release(ticket, *compute_);
  EXPECT_EQ(calls.waits, 2U);  // One wait for all: they end together.
  const DeviceBuffer destination = device_.allocate(64_KiB * 3);
  for (std::size_t i = 0; i < 3; ++i) {
    engine_.reload(tickets[i], destination.span().subspan(i * 65536, 65536), *compute_);
  }
  EXPECT_EQ(calls.copies, 16U);
  engine_.ready(tickets[1], *compute_);
  EXPECT_EQ(calls.copies, 19U);
  EXPECT_EQ(calls.batches, 2U);
  compute_->synchronize();
  EXPECT_TRUE(holds(destination, 1));
}

TEST_F(EngineTest, AGroupLeavesWhenALargeCopyOrAnotherStreamFollowsOrAtAFlush) {
  const testing::DeviceCalls& calls = device_.calls();
  const auto other = device_.make_stream("other");
  const DeviceBuffer small = filled(1, 4_KiB);
  const DeviceBuffer large = filled(2, 1_MiB);
  const Ticket first = *engine_.offload(small.span(), *compute_);
  EXPECT_EQ(calls.copies, 0U);
  const Ticket second = *engine_.offload(small.span(), *other);
  EXPECT_EQ(calls.copies, 1U);
  const Ticket third = *engine_.offload(large.span(), *other);
  EXPECT_EQ(calls.copies, 3U);
  const Ticket fourth = *engine_.offload(small.span(), *other);
  EXPECT_EQ(calls.copies, 3U);
  engine_.flush();
  EXPECT_EQ(calls.copies, 4U);
  engine_.flush();
  EXPECT_EQ(calls.copies, 4U);
  EXPECT_EQ(calls.batches, 0U);  // Every group had one member.
  device_.synchronize();
}

TEST_F(EngineTest, ACopyCancelledBeforeItsGroupLeavesIsNeverMade) {
  const DeviceBuffer small = filled(3, 4_KiB);
  Ticket kept = *engine_.offload(small.span(), *compute_);
  { const Ticket cancelled = *engine_.offload(small.span(), *compute_); }
  EXPECT_EQ(tier_.counts().leases, 1U);
  engine_.flush();
  EXPECT_EQ(device_.calls().copies, 1U);
  engine_.release(kept, *compute_);
  engine_.reload(kept, small.span(), *compute_);
  kept = Ticket();
  EXPECT_EQ(device_.calls().copies, 1U);
  EXPECT_EQ(tier_.counts().leases, 0U);
  EXPECT_EQ(slab_.usage().holes, 0U);
  compute_->synchronize();
}

TEST_F(EngineTest, WhatItDoesDependsOnlyOnTheCalls) {
  std::vector<std::ptrdiff_t> addresses;
  TracingTier tracing(tier_, [&](const TierEvent& event) {
    addresses.push_back(event.data == nullptr ? -1 : event.data - slab_.base());
  });
  TransferEngine engine(device_, tracing);
  const DeviceBuffer buffer = filled(1, 64_KiB);
  const auto program = [&](bool wait) {
    addresses.clear();
    std::vector<Ticket> tickets;
    for (std::size_t i = 0; i < 100; ++i) {
      const Bytes size(1 + i * 7919 % (64 << 10));
      tickets.push_back(*engine.offload(buffer.span().first(size.count()), *compute_));
      if (i % 3 == 2) {
        Ticket& chosen = tickets[tickets.size() / 2];
        engine.release(chosen, *compute_);
        engine.reload(chosen, buffer.span().first(chosen.size().count()), *compute_);
        chosen = Ticket();
        tickets.erase(tickets.begin() + static_cast<std::ptrdiff_t>(tickets.size() / 2));
      }
      if (wait) device_.synchronize();
    }
    tickets.clear();
    return addresses;
  };
  const auto with_waits = program(true);
  EXPECT_EQ(with_waits, program(false));
  compute_->synchronize();
}

TEST_F(EngineTest, SaysWhatIsWrongWithACall) {
  EXPECT_EQ(error_text<InvalidArgument>([&] { (void)engine_.offload({}, *compute_); }),
            "[offload] the source has 0 bytes; keep it instead");
  const DeviceBuffer source = filled(1);
  Ticket ticket = *engine_.offload(source.span(), *compute_);
  EXPECT_EQ(error_text<InvalidArgument>([&] { engine_.ready(ticket, *compute_); }),
            "[ready] the buffer was not reloaded; call reload() first");
  EXPECT_EQ(error_text<InvalidArgument>(
                [&] { engine_.reload(ticket, source.span().first(100), *compute_); }),
            "[reload] a destination of 100 bytes was given for a buffer of 16384; give one of "
            "exactly that size");
  EXPECT_FALSE(ticket.reloading());
  compute_->synchronize();
}

/// A pipeline rank's schedule with up to three passes in flight, through both windows.
TEST_F(EngineTest, KeepsSeveralPassesInFlight) {
  constexpr int kBuffers = 6;
  struct Activation {
    int pass = 0;
    int index = 0;
    DeviceBuffer memory;
    Ticket ticket;
  };
  using Held = std::shared_ptr<Activation>;
  OffloadWindow<Held> out(kSize * 4);
  ReloadWindow<Held> back(kSize * 3);
  std::vector<std::vector<Held>> passes(4);
  const auto value_of = [](const Held& each) { return 1 + each->pass * kBuffers + each->index; };
  const auto release = [&](const Held& each) {
    engine_.release(each->ticket, *compute_);
    poison(each->memory);
    compute_->call("free", [memory = std::make_shared<DeviceBuffer>(std::move(each->memory))] {});
  };
  const auto forward = [&](int pass) {
    for (int i = 0; i < kBuffers; ++i) {
      auto held = std::make_shared<Activation>();
      held->pass = pass;
      held->index = i;
      held->memory = filled(1 + pass * kBuffers + i);
      held->ticket = *engine_.offload(held->memory.span(), *compute_);
      passes[static_cast<std::size_t>(pass)].push_back(held);
      out.push(held, kSize);
      while (auto due = out.pop_overdue()) release(*due);
    }
  };
  const auto prefetch = [&] {
    while (auto next = back.next()) {
      // Still on the device: used as it is.
      if (out.take([&](const Held& each) { return each == *next; })) continue;
      (*next)->memory = device_.allocate(kSize);
      poison((*next)->memory);
      engine_.reload((*next)->ticket, (*next)->memory.span(), *compute_);
    }
  };
  std::vector<std::pair<int, std::shared_ptr<DeviceBuffer>>> results;
  const auto backward = [&](int pass) {
    auto& buffers = passes[static_cast<std::size_t>(pass)];
    for (auto each = buffers.rbegin(); each != buffers.rend(); ++each) back.append(*each, kSize);
    while (!buffers.empty()) {
      prefetch();
      const Held held = buffers.back();
      buffers.pop_back();
      if (held->ticket.reloading()) engine_.ready(held->ticket, *compute_);
      auto result = std::make_shared<DeviceBuffer>(device_.allocate(kSize));
      compute_->copy(result->data(), held->memory.data(), kSize, CopyKind::kOnDevice);
      results.emplace_back(value_of(held), result);
      held->ticket = Ticket();
      poison(held->memory);
      compute_->call("free", [memory = std::make_shared<DeviceBuffer>(std::move(held->memory))] {});
      back.finished(kSize);
    }
  };
  forward(0);
  forward(1);
  forward(2);
  backward(0);
  forward(3);
  backward(1);
  backward(2);
  backward(3);
  compute_->synchronize();
  ASSERT_EQ(results.size(), 4U * kBuffers);
  for (const auto& [value, buffer] : results) EXPECT_TRUE(holds(*buffer, value)) << value;
  EXPECT_EQ(back.prefetched(), 0_B);
  EXPECT_EQ(tier_.counts().leases, 0U);
  EXPECT_LT(engine_.totals().reloads, 4U * kBuffers);  // The last buffers never left.
}

}  // namespace
}  // namespace spillway
