#include "torch/record/event_log.hpp"

#include <new>
#include <thread>

#include <gtest/gtest.h>

#include "spillway/core/event_pool.hpp"
#include "spillway/core/host_device.hpp"
#include "support/gate.hpp"
#include "support/manual_clock.hpp"
#include "torch/record/pass_moments.hpp"
#include "torch/record/step_time.hpp"
#include "torch/record/wait_times.hpp"
#include "torch/support/wrapping_torch_device.hpp"

namespace spillway {
namespace {

using std::chrono::milliseconds;

/// A device whose operators run on streams, as a GPU's do, and whose time a test sets.
class StreamDevice final : public TorchDevice {
 public:
  [[nodiscard]] at::Device torch_device() const override { return at::kCPU; }
  [[nodiscard]] Device& device() override { return device_; }
  [[nodiscard]] Stream& current_stream() override { return *stream_; }
  void catch_up(Stream& /*stream*/) override {}
  [[nodiscard]] c10::Storage allocate(std::size_t /*bytes*/, Stream& /*stream*/) override {
    return {};
  }
  void beside(Stream& stream, const std::function<void(Stream&)>& work) override { work(stream); }
  [[nodiscard]] bool computes_beside() const override { return true; }
  void keep_busy() override {}
  void mark(Stream& stream, TimeMark& mark) override {
    if (mark.event == nullptr) mark.event = events_.take();
    stream.record(*mark.event);
  }
  [[nodiscard]] bool has_happened(const TimeMark& mark) const override {
    return mark.event->query();
  }
  [[nodiscard]] Nanoseconds elapsed(const TimeMark& from, const TimeMark& to) override {
    to.event->synchronize();
    return to.event->elapsed_since(*from.event);
  }
  void digest(const c10::Storage& /*storage*/, ByteRange /*bytes*/, const at::Tensor& /*number*/,
              Stream& /*stream*/) override {}
  [[nodiscard]] Bytes peak() const override { return {}; }
  Bytes take_peak() override { return {}; }
  [[nodiscard]] Bytes allocated() const override { return {}; }
  [[nodiscard]] Bytes granularity() const override { return {}; }
  [[nodiscard]] Bytes room() const override { return {}; }

  [[nodiscard]] testing::ManualClock& clock() { return *clock_; }
  /// How many events its marks have needed.
  [[nodiscard]] std::size_t events_made() const { return events_.made(); }

 private:
  std::shared_ptr<testing::ManualClock> clock_ = std::make_shared<testing::ManualClock>();
  HostDevice device_{clock_};
  EventPool events_{device_, Timing::kOn};
  std::unique_ptr<Stream> stream_ = device_.make_stream("compute");
};

class EventLogTest : public ::testing::Test {
 protected:
  static constexpr StepLog::Needs kWaits{.waits = true};

  /// The compute stream waits for something that takes `time`.
  void wait(WaitCause cause, Nanoseconds time) {
    const auto copies = device_.device().make_stream("copies");
    const auto done = device_.device().make_event(Timing::kOff);
    testing::Gate gate;
    gate.close(*copies);
    copies->record(*done);
    const int before = device_.clock().readings();
    log_.wait(cause, device_.current_stream(), [&] { device_.current_stream().wait(*done); });
    // The compute stream is at the wait.
    while (device_.clock().readings() == before) std::this_thread::yield();
    device_.clock().advance(time);
    gate.open();
    copies->synchronize();
    device_.current_stream().synchronize();  // The next wait counts readings of the clock.
  }

  /// A timed step that waits once, for nothing.
  std::shared_ptr<const StepLog> timed_step(std::uint64_t number) {
    log_.begin(number, kWaits);
    log_.wait(WaitCause::kRelease, device_.current_stream(), [] {});
    return log_.end();
  }

  StreamDevice device_;
  EventLog log_{device_};
};

TEST_F(EventLogTest, HasTheTimeOfAStep) {
  log_.begin(1, {.step_time = true});
  device_.current_stream().synchronize();
  device_.clock().advance(milliseconds(5));
  const auto log = log_.end();
  EXPECT_EQ(step_time(*log, device_), milliseconds(5));
}

TEST_F(EventLogTest, DoesNotKnowTheTimeOfAStepThatIsNotDone) {
  testing::Gate gate;
  log_.begin(1, {.step_time = true});
  gate.close(device_.current_stream());
  const auto log = log_.end();
  EXPECT_FALSE(step_time_known(*log, device_));
  gate.open();
  device_.current_stream().synchronize();
  EXPECT_TRUE(step_time_known(*log, device_));
}

TEST(EventLog, DoesNotKnowTheTimeWhereNoMarkCanBeMade) {
  class NoMemory final : public testing::WrappingTorchDevice {
   public:
    void mark(Stream& /*stream*/, TimeMark& /*mark*/) override { throw std::bad_alloc(); }
  };
  NoMemory device;
  EventLog log(device);
  log.begin(1, {.step_time = true});
  const auto ended = log.end();
  EXPECT_TRUE(step_time_known(*ended, device));
  EXPECT_FALSE(step_time(*ended, device));
}

TEST_F(EventLogTest, MakesNoMarkInAStepThatNeedsNone) {
  log_.begin(1, {});
  bool waited = false;
  log_.wait(WaitCause::kRelease, device_.current_stream(), [&] { waited = true; });
  EXPECT_TRUE(waited);
  EXPECT_EQ(log_.end(), nullptr);
  EXPECT_EQ(device_.events_made(), 0U);
}

TEST_F(EventLogTest, UsesTheEventsAgainOfStepsThatNobodyReads) {
  const auto first = timed_step(1);
  EXPECT_EQ(device_.events_made(), 2U);
  (void)timed_step(2);
  EXPECT_EQ(device_.events_made(), 4U);  // The first one may still be read.
  for (std::uint64_t number = 3; number < 10; ++number) (void)timed_step(number);
  EXPECT_EQ(device_.events_made(), 4U);
  EXPECT_EQ(first->step, 1U);
}

TEST_F(EventLogTest, KeepsNothingOfTheStepsBefore) {
  class Allocated final : public testing::WrappingTorchDevice {
   public:
    [[nodiscard]] Bytes allocated() const override { return Bytes(7); }
  };
  Allocated device;
  EventLog log(device);
  log.begin(1, {.step_time = true, .compute = true, .memory = true}, nullptr, device.epoch());
  log.resume();
  log.wait(WaitCause::kReload, device.current_stream(), [] {});
  log.moment(0, MomentKind::kSave, 0);
  log.copied_out(0, 0, 1);
  EXPECT_EQ(log.name("layer", "aten::mm"), 0);
  log.end_work(log.begin_work(), StepLog::Work::Kind::kReplay, 0, 0, Bytes(1));
  EXPECT_EQ(log.end()->at_start, Bytes(7));
  log.begin(2, kWaits);
  EXPECT_FALSE(log.times_compute());
  EXPECT_FALSE(log.traces());
  const auto next = log.end();
  EXPECT_EQ(next->step, 2U);
  EXPECT_EQ(next->marked, 0U);
  EXPECT_FALSE(next->begin || next->end || next->epoch);
  EXPECT_TRUE(next->waits.empty() && next->intervals.empty() && next->moments.empty());
  EXPECT_TRUE(next->works.empty() && next->copies.empty() && next->names.empty());
  EXPECT_EQ(next->at_start + next->peak, Bytes(0));
}

TEST_F(EventLogTest, CountsAsComputeWhatRunsBetweenPauses) {
  const auto passes = [this](milliseconds time) {
    device_.current_stream().synchronize();
    device_.clock().advance(time);
  };
  log_.begin(1, {.compute = true});
  log_.resume();
  passes(milliseconds(5));
  log_.pause();
  log_.pause();
  passes(milliseconds(2));
  log_.resume();
  log_.moment(0, MomentKind::kSave, 0);
  log_.uses_stream();
  log_.resume();
  passes(milliseconds(3));
  log_.pause();
  log_.moment(0, MomentKind::kBackwardBegins, -1);
  passes(milliseconds(4));  // The stream was not used: a gap between kernels.
  log_.resume();
  passes(milliseconds(1));
  const auto log = log_.end();
  EXPECT_EQ(device_.events_made(), 5U);
  StepMoments moments = moments_of(*log, 1);
  add_times(*log, device_, moments);
  std::vector<std::int64_t> times;
  for (const Moment& moment : moments.passes[0].list) times.push_back(moment.compute_ns / 1000000);
  EXPECT_EQ(times, (std::vector<std::int64_t>{5, 3, 5}));
}

TEST_F(EventLogTest, NotesWorkOnlyInTheStepInWhichItBegan) {
  const auto trace = [&](std::uint64_t step) {
    log_.begin(step, {.compute = true}, nullptr, device_.now());
  };
  trace(1);
  const EventLog::Begun begun = log_.begin_work();
  (void)log_.end();
  log_.end_work(begun, StepLog::Work::Kind::kGather, 0, 0, Bytes(1));
  trace(2);
  log_.end_work(begun, StepLog::Work::Kind::kGather, 0, 0, Bytes(1));
  EXPECT_TRUE(log_.end()->works.empty());
}

TEST_F(EventLogTest, SumsTheWaitsOfTheStreamByCause) {
  log_.begin(2, kWaits);
  wait(WaitCause::kRelease, milliseconds(5));
  wait(WaitCause::kRelease, milliseconds(2));
  wait(WaitCause::kReload, milliseconds(3));
  wait(WaitCause::kInPlace, milliseconds(1));
  const std::optional<WaitTotals> totals = wait_totals(*log_.end(), device_);
  ASSERT_TRUE(totals);
  EXPECT_EQ(totals->step, 2U);
  EXPECT_EQ(totals->release, milliseconds(7));
  EXPECT_EQ(totals->reload, milliseconds(3));
  EXPECT_EQ(totals->in_place, milliseconds(1));
}

TEST_F(EventLogTest, DoesNotWaitForAStepThatIsNotDone) {
  WaitTimes times(device_, 1);
  testing::Gate gate;
  EXPECT_TRUE(times.begin_step(false));
  gate.close(device_.current_stream());
  times.end_step(timed_step(1));
  EXPECT_FALSE(times.begin_step(false));  // The waits of step 1 are not over.
  EXPECT_EQ(times.last().step, 0U);
  gate.open();
  device_.current_stream().synchronize();
  EXPECT_TRUE(times.begin_step(false));
  times.end_step(timed_step(3));
  EXPECT_EQ(times.last().step, 1U);
  const auto log = times.take();
  ASSERT_TRUE(log);
  EXPECT_EQ(log->step, 3U);
}

TEST_F(EventLogTest, TimesTheFirstStepsAfterARecordingStepAndThenEveryNth) {
  WaitTimes times(device_, 4);
  std::vector<int> timed;
  for (int step = 1; step <= 14; ++step) {
    if (times.begin_step(step == 1 || step == 11)) timed.push_back(step);
  }
  EXPECT_EQ(timed, (std::vector<int>{2, 3, 6, 10, 12, 13}));
}

}  // namespace
}  // namespace spillway
