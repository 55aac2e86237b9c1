// When copies were queued, started and done.
#include <utility>
#include <vector>

#include "engine_fixture.hpp"
#include "support/gate.hpp"
#include "support/manual_clock.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::EngineTest;
using testing::Gate;
using testing::kSize;

class TimedEngineTest : public EngineTest {
 protected:
  TimedEngineTest() : EngineTest(Timing::kOn) {}
};

TEST_F(EngineTest, TimesCopiesOnlyBetweenStartAndStop) {
  const DeviceBuffer source = filled(1);
  const DeviceBuffer destination = device_.allocate(kSize);
  const auto copy_out_and_back = [&] {
    Ticket ticket = *engine_.offload(source.span(), *compute_);
    const std::uint64_t id = ticket.id();
    engine_.release(ticket, *compute_);
    engine_.reload(ticket, destination.span(), *compute_);
    engine_.ready(ticket, *compute_);
    return id;
  };
  (void)copy_out_and_back();
  const EventRef epoch = device_.make_event(Timing::kOn);
  compute_->record(*epoch);
  engine_.start_timing(epoch);
  const std::uint64_t timed = copy_out_and_back();
  engine_.stop_timing();
  (void)copy_out_and_back();
  const std::vector<TransferRecord> records = engine_.drain_records();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].ticket, timed);
  EXPECT_GE(records[0].out.started, Nanoseconds(0));
  EXPECT_GE(records[0].out.done, records[0].out.started);
  ASSERT_TRUE(records[0].back);
  EXPECT_GE(records[0].back->started, records[0].out.done);
  device_.synchronize();  // The last copies still use both buffers.
}

TEST_F(EngineTest, ForgetsUndrainedRecordsWhenTimingStartsAgain) {
  const DeviceBuffer source = filled(1);
  const EventRef epoch = device_.make_event(Timing::kOn);
  compute_->record(*epoch);
  engine_.start_timing(epoch);
  (void)engine_.offload(source.span(), *compute_);
  engine_.start_timing(epoch);
  EXPECT_TRUE(engine_.drain_records().empty());
  engine_.stop_timing();
  device_.synchronize();
}

TEST_F(TimedEngineTest, RecordsWhenEachCopyWasQueuedStartedAndDone) {
  const DeviceBuffer source = filled(1);
  const DeviceBuffer destination = device_.allocate(kSize);
  {
    Ticket first = *engine_.offload(source.span(), *compute_);
    const Ticket second = *engine_.offload(source.span(), *compute_);
    engine_.release(first, *compute_);
    engine_.reload(first, destination.span(), *compute_);
    engine_.ready(first, *compute_);
  }
  std::vector<TransferRecord> records = engine_.drain_records();
  ASSERT_EQ(records.size(), 2U);
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.ticket < b.ticket; });
  EXPECT_EQ(records[0].bytes, kSize);
  EXPECT_GT(records[0].out.queued, Nanoseconds(0));
  EXPECT_GE(records[0].out.started, Nanoseconds(0));
  EXPECT_GE(records[0].out.done, records[0].out.started);
  ASSERT_TRUE(records[0].back);
  EXPECT_GE(records[0].back->started, records[0].out.done);
  EXPECT_GE(records[0].back->done, records[0].back->started);
  EXPECT_FALSE(records[1].back);
  EXPECT_TRUE(engine_.drain_records().empty());
}

TEST(TimedEngine, MeasuresHowLongAStreamWaited) {
  const auto clock = std::make_shared<testing::ManualClock>();
  HostDevice device(clock);
  Slab slab(device, {.capacity = 2_MiB});
  HostTier tier(slab);
  TransferEngine engine(device, tier, {.timing = Timing::kOn});
  const auto producer = device.make_stream("producer");
  const auto compute = device.make_stream("compute");
  const DeviceBuffer source = device.allocate(kSize);
  Gate gate;
  gate.close(*producer);
  {
    Ticket ticket = *engine.offload(source.span(), *producer);
    const int before = clock->readings();
    engine.release(ticket, *compute);
    // The compute stream is at the wait; everybody else stands behind the gate.
    while (clock->readings() == before) std::this_thread::yield();
    clock->advance(std::chrono::milliseconds(5));
    gate.open();
  }
  const std::vector<TransferRecord> records = engine.drain_records();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].out.wait, std::chrono::milliseconds(5));
}

}  // namespace
}  // namespace spillway
