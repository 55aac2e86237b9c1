/// The moments of a step's passes, how long the device computed between them, and how much was
/// allocated; internal. Under the session's lock, except running().
///
/// One clock for all passes of a step, because they may alternate. It pauses while the session
/// itself runs, so that neither its waits for copies nor its replays nor, on the CPU, its own code
/// count as the model's. Where operators run beside the calling thread and the session does not use
/// their stream, it keeps running: the small gaps between kernels are the model's.
/// What it measured since the previous moment belongs to the pass of the next moment.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "plan/profile/pass_moments.hpp"
#include "torch/device/torch_device.hpp"
#include "torch/record/storage_watch.hpp"

namespace spillway {

class StepClock {
 public:
  explicit StepClock(TorchDevice& device) : device_(&device) {}
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

  /// An interval between two marks in which the clock was not paused.
  struct Interval {
    TimeMark begin;
    TimeMark end;
    std::shared_ptr<PassMoments> pass;  // It leads to number `moment` of this pass; null: none.
    std::size_t moment = 0;
  };
  /// The peak of allocated bytes from `at` to the next mark, beyond at_start().
  struct MemoryMark {
    TimeMark at;
    std::int64_t bytes = 0;
  };

  /// Starts the clock and discards the previous step. `watch`: the storages beside which untracked
  /// bytes are counted; null: bytes are not counted. `traces`: memory() is needed.
  void start(StorageWatch* watch, bool traces);
  [[nodiscard]] bool running() const noexcept { return running_; }
  /// How often it was started.
  [[nodiscard]] std::uint64_t starts() const noexcept { return starts_; }

  /// The session begins to run; nests.
  void pause() noexcept;
  /// In a pause: the session queues work on the stream of the operators.
  void uses_stream() noexcept { uses_stream_ = true; }
  /// The session no longer runs.
  void resume() noexcept;

  /// Adds a moment; the first one after pause() gets what was measured since the previous moment.
  void moment(const std::shared_ptr<PassMoments>& pass, MomentKind kind, int index);

  /// Ends the step. What was measured since the last moment belongs to the last pass, if that is in
  /// its backward.
  void stop() noexcept;

  /// Fills in the times of all moments. Blocks until they have happened. After stop(), and after
  /// end_of() for each pass that gets an end.
  /// Errors: DeviceError of a failed device.
  void resolve();
  /// Whether resolve() would have to wait.
  [[nodiscard]] bool have_happened() const {
    return intervals_.empty() || device_->has_happened(intervals_.back().end);
  }
  /// Adds the last moment of a pass.
  static void end_of(PassMoments& pass);

  /// Of the step, until resolve() or start(). After stop().
  [[nodiscard]] const std::vector<Interval>& intervals() const noexcept { return intervals_; }
  [[nodiscard]] const std::vector<MemoryMark>& memory() const noexcept { return memory_; }

  /// Whether the device failed on the way: then there are no times.
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  /// What was allocated when the step began.
  [[nodiscard]] Bytes at_start() const noexcept { return at_start_; }
  /// The peak since then, if there is a watch or memory is traced.
  [[nodiscard]] Bytes peak() const noexcept { return peak_; }

 private:
  void measure(std::int64_t bytes);
  void find_bases(const std::shared_ptr<PassMoments>& pass, MomentKind kind);
  [[nodiscard]] std::int64_t above_start(Bytes bytes) const;
  [[nodiscard]] bool assign_to(const std::shared_ptr<PassMoments>& pass);

  TorchDevice* device_;
  StorageWatch* watch_ = nullptr;
  std::atomic<bool> running_ = false;
  std::uint64_t starts_ = 0;
  bool traces_ = false;
  bool failed_ = false;
  int pauses_ = 0;
  bool uses_stream_ = false;
  std::optional<TimeMark> since_;
  std::optional<TimeMark> paused_;
  std::vector<Interval> intervals_;
  std::vector<MemoryMark> memory_;
  std::size_t assigned_ = 0;  // Intervals that have a pass.
  std::shared_ptr<PassMoments> last_;
  Bytes at_start_;
  Bytes peak_;
  // Untracked bytes: the peak since the last moment, at the last pause, and the least at any pause
  // since the last moment.
  std::optional<std::int64_t> bytes_;
  std::int64_t bytes_now_ = 0;
  std::int64_t lowest_ = 0;
};

}  // namespace spillway
