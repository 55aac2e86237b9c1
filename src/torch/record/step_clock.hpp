/// The moments of a step's passes, how long the device computed between them, and how much was
/// allocated; internal. Under the session's lock, except running().
///
/// One clock for all passes of a step, for they may take turns. It stands still while the session
/// itself is at work, so that neither its waits for copies nor its replays nor, on the CPU, its own
/// doing count as the model's. Where operators run beside the calling thread and the session has
/// nothing done on their stream, it goes on: the small gaps between kernels are the model's.
/// What it measured since the moment before belongs to the pass of the moment that comes next.
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

  /// What the device did between two marks, while the session was not at work.
  struct Interval {
    TimeMark begin;
    TimeMark end;
    std::shared_ptr<PassMoments> pass;  // Whose moment number `moment` it leads to; null: nobody's.
    std::size_t moment = 0;
  };
  /// The most bytes allocated from there to the next mark, above at_start().
  struct MemoryMark {
    TimeMark at;
    std::int64_t bytes = 0;
  };

  /// `watch`: the storages beside which bytes are counted; null: bytes are nobody's business.
  /// `traces`: memory() is wanted. Forgets the step before. It runs from now on.
  void start(StorageWatch* watch, bool traces);
  [[nodiscard]] bool running() const noexcept { return running_; }

  /// The session is at work; nests.
  void pause() noexcept;
  /// In a pause: it has something done on the stream of the operators.
  void works() noexcept { works_ = true; }
  /// ... and no longer.
  void resume() noexcept;

  /// Now: the first one after pause() gets what was measured since the moment before.
  void moment(const std::shared_ptr<PassMoments>& pass, MomentKind kind, int index);

  /// What was measured since the last moment belongs to the last pass, if that is in its backward.
  void stop() noexcept;

  /// Fills in the times of all moments. Blocks until they have happened. After stop(), and after
  /// end_of() was called for each pass that shall have an end.
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
  /// What was allocated when the step began,
  [[nodiscard]] Bytes at_start() const noexcept { return at_start_; }
  /// and the most since then, if there is a watch or memory is traced.
  [[nodiscard]] Bytes peak() const noexcept { return peak_; }

 private:
  void measure(std::int64_t bytes);
  void find_bases(const std::shared_ptr<PassMoments>& pass, MomentKind kind);
  [[nodiscard]] std::int64_t above_start(Bytes bytes) const;
  [[nodiscard]] bool give_to(const std::shared_ptr<PassMoments>& pass);

  TorchDevice* device_;
  StorageWatch* watch_ = nullptr;
  std::atomic<bool> running_ = false;
  bool traces_ = false;
  bool failed_ = false;
  int pauses_ = 0;
  bool works_ = false;
  std::optional<TimeMark> since_;
  std::optional<TimeMark> paused_;
  std::vector<Interval> intervals_;
  std::vector<MemoryMark> memory_;
  std::size_t given_ = 0;  // Of them.
  std::shared_ptr<PassMoments> last_;
  Bytes at_start_;
  Bytes peak_;
  std::optional<std::int64_t> bytes_;  // The most beside saved buffers since the last moment,
  std::int64_t bytes_now_ = 0;         // and at the last pause,
  std::int64_t lowest_ = 0;            // and the least at a pause since the last moment.
};

}  // namespace spillway
