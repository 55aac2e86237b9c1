#include <new>
#include <thread>

#include <gtest/gtest.h>

#include "spillway/core/event_pool.hpp"
#include "spillway/core/host_device.hpp"
#include "support/gate.hpp"
#include "support/manual_clock.hpp"
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
  [[nodiscard]] TimeMark mark() override { return mark_on(*stream_); }
  [[nodiscard]] TimeMark mark_on(Stream& stream) override {
    TimeMark mark{events_.take(), {}};
    stream.record(*mark.event);
    return mark;
  }
  [[nodiscard]] bool has_happened(const TimeMark& mark) const override {
    return mark.event->query();
  }
  [[nodiscard]] Nanoseconds elapsed(const TimeMark& from, const TimeMark& to) override {
    to.event->synchronize();
    return to.event->elapsed_since(*from.event);
  }
  void digest(const c10::Storage& /*storage*/, const at::Tensor& /*number*/,
              Stream& /*stream*/) override {}
  [[nodiscard]] Bytes peak() const override { return {}; }
  Bytes take_peak() override { return {}; }
  [[nodiscard]] Bytes allocated() const override { return {}; }
  [[nodiscard]] Bytes granularity() const override { return {}; }
  [[nodiscard]] Bytes room() const override { return {}; }

  [[nodiscard]] testing::ManualClock& clock() { return *clock_; }

 private:
  std::shared_ptr<testing::ManualClock> clock_ = std::make_shared<testing::ManualClock>();
  HostDevice device_{clock_};
  EventPool events_{device_, Timing::kOn};
  std::unique_ptr<Stream> stream_ = device_.make_stream("compute");
};

class WaitTimesTest : public ::testing::Test {
 protected:
  /// The compute stream waits for something that takes `time`.
  void wait(WaitTimes& times, WaitCause cause, Nanoseconds time) {
    const auto copies = device_.device().make_stream("copies");
    const auto done = device_.device().make_event(Timing::kOff);
    testing::Gate gate;
    gate.close(*copies);
    copies->record(*done);
    const int before = device_.clock().readings();
    times.time(cause, device_.current_stream(), [&] { device_.current_stream().wait(*done); });
    // The compute stream is at the wait.
    while (device_.clock().readings() == before) std::this_thread::yield();
    device_.clock().advance(time);
    gate.open();
    copies->synchronize();
    device_.current_stream().synchronize();  // The next wait counts readings of the clock.
  }

  StreamDevice device_;
};

TEST(StepTimeTest, IsUnknownWhereNoMomentCanBeNoted) {
  class NoMemory final : public testing::WrappingTorchDevice {
   public:
    [[nodiscard]] TimeMark mark() override { throw std::bad_alloc(); }
  };
  NoMemory device;
  StepTime time(device);
  time.begin();
  time.end();
  EXPECT_FALSE(time.take(/*wait=*/true));
}

TEST_F(WaitTimesTest, SumsTheWaitsOfTheStreamByCause) {
  WaitTimes times(device_, 4);
  times.begin_step(1, true);
  times.end_step();
  EXPECT_FALSE(times.take());
  times.begin_step(2, false);
  wait(times, WaitCause::kRelease, milliseconds(5));
  wait(times, WaitCause::kRelease, milliseconds(2));
  wait(times, WaitCause::kReload, milliseconds(3));
  wait(times, WaitCause::kInPlace, milliseconds(1));
  EXPECT_FALSE(times.take());  // The step has not ended.
  times.end_step();
  const auto marks = times.take();
  ASSERT_TRUE(marks);
  times.keep(times.read(*marks));
  EXPECT_EQ(times.last().step, 2U);
  EXPECT_EQ(times.last().release, milliseconds(7));
  EXPECT_EQ(times.last().reload, milliseconds(3));
  EXPECT_EQ(times.last().in_place, milliseconds(1));
}

TEST_F(WaitTimesTest, DoesNotWaitForAStepThatIsNotDone) {
  WaitTimes times(device_, 1);
  testing::Gate gate;
  times.begin_step(1, false);
  gate.close(device_.current_stream());
  times.time(WaitCause::kRelease, device_.current_stream(), [] {});
  times.end_step();
  times.begin_step(2, false);  // Is not timed: the marks of step 1 have not happened.
  times.time(WaitCause::kRelease, device_.current_stream(), [] {});
  times.end_step();
  EXPECT_EQ(times.last().step, 0U);
  gate.open();
  device_.current_stream().synchronize();
  times.begin_step(3, false);
  times.end_step();
  EXPECT_EQ(times.last().step, 1U);
  const auto marks = times.take();
  ASSERT_TRUE(marks);
  EXPECT_EQ(marks->step, 3U);
}

TEST_F(WaitTimesTest, TimesTheFirstStepsAfterARecordingStepAndThenEveryNth) {
  WaitTimes times(device_, 4);
  std::vector<std::uint64_t> timed;
  for (std::uint64_t step = 1; step <= 14; ++step) {
    times.begin_step(step, step == 1 || step == 11);
    times.end_step();
    if (const auto marks = times.take()) timed.push_back(marks->step);
  }
  EXPECT_EQ(timed, (std::vector<std::uint64_t>{2, 3, 6, 10, 12, 13}));
}

}  // namespace
}  // namespace spillway
