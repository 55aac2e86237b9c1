/// Notes what a step does as marks on its streams; internal.
///
/// Main operations: begin() and end() of a step, wait() around what makes a stream wait, pause()
/// and resume() around what the session does, moment() of a pass; in a traced step also names,
/// copies and what the session did for buffers. What a step noted is read from its StepLog when it
/// is over, whenever that suits the reader.
/// Threads: under the session's lock, except times_compute(). A finished log may be read on any
/// thread, without the lock.
/// Streams: a mark is queued on the stream it is about. The host waits for none, in no step.
/// Compute is the model's alone, of all passes of a step, because they may alternate. It pauses
/// while the session runs, so that neither its waits for copies nor its replays nor, on the CPU,
/// its own code count. Where operators run beside the calling thread and the session does not use
/// their stream, it goes on: the small gaps between kernels are the model's.
/// Cost: nothing in steps that need nothing; else a log, whose marks, events included, are those of
/// an earlier step that nobody reads any more. So a warm session allocates nothing for a mark.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "torch/record/step_log.hpp"

namespace spillway {

class StorageWatch;

class EventLog {
 public:
  explicit EventLog(TorchDevice& device);
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  /// The step with number `step`, from 1, begins; compute is paused until resume(). What the last
  /// one noted is discarded, unless it has ended. `watch`: the storages whose bytes are counted, if
  /// memory is needed; or null. `epoch`: where the times of a traced step count from.
  void begin(std::uint64_t step, const StepLog::Needs& needs, StorageWatch* watch = nullptr,
             std::optional<TimeMark> epoch = std::nullopt);
  /// The step ends; null if it needed nothing.
  [[nodiscard]] std::shared_ptr<const StepLog> end() noexcept;
  /// The step could not begin or end as it should.
  void discard() noexcept;

  /// Whether moments of this step are noted. Without the lock.
  [[nodiscard]] bool times_compute() const noexcept { return times_compute_; }
  /// How often a step began.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

  /// The session begins to run; nests.
  void pause() noexcept;
  /// In a pause: the session queues work on the stream of the operators.
  void uses_stream() noexcept { uses_stream_ = true; }
  /// The session no longer runs.
  void resume() noexcept;
  /// What was computed since the moment before, of any pass, belongs to this one.
  void moment(int pass, MomentKind kind, int index, int detail = -1) {
    log_->moments.push_back({pass, kind, index, log_->intervals.size(), detail});
  }

  [[nodiscard]] bool traces() const noexcept { return log_ != nullptr && log_->epoch; }
  // The following note something in a traced step, and nothing in others.
  /// Returns the name's number, for the moment at which a call begins.
  [[nodiscard]] int name(const std::string& scope, const std::string& call);
  void copied_out(int pass, int buffer, std::uint64_t ticket);
  /// Something begins on the current stream that may take until a later step.
  struct Begun {
    std::uint64_t steps = 0;  // steps() at that time; 0: it is not noted.
    StepLog::Mark at = 0;
  };
  [[nodiscard]] Begun begin_work() noexcept;
  /// It ends here on the current stream.
  void end_work(const Begun& begun, StepLog::Work::Kind kind, int pass, int buffer, Bytes bytes);

  /// Runs `wait`, which makes `stream`, of operators, wait, and notes for how long.
  template <typename F>
  void wait(WaitCause cause, Stream& stream, F&& wait) {
    uses_stream();
    if (log_ == nullptr || !log_->needs.waits) return std::forward<F>(wait)();
    const std::optional<StepLog::Mark> begin = mark(stream);
    std::forward<F>(wait)();
    const std::optional<StepLog::Mark> end = mark(stream);
    if (begin && end) log_->waits.push_back({cause, *begin, *end});
  }

 private:
  struct Pool;

  /// For another step; the memory of its lists and the events of its marks stay.
  static void clear(StepLog& log);
  [[nodiscard]] std::int64_t above_start(Bytes bytes) const;
  [[nodiscard]] std::int64_t take_peak();
  /// The next use of the device throws.
  void fail() noexcept { log_->failed = true; }
  /// Empty on a device that has failed: its next use throws.
  [[nodiscard]] std::optional<StepLog::Mark> mark(Stream& stream) noexcept;
  [[nodiscard]] std::optional<StepLog::Mark> mark() noexcept;

  TorchDevice* device_;
  std::shared_ptr<Pool> pool_;
  std::shared_ptr<StepLog> log_;  // Of this step; null: it needs nothing.
  std::atomic<bool> times_compute_ = false;
  std::uint64_t steps_ = 0;
  StorageWatch* watch_ = nullptr;
  int pauses_ = 0;
  bool uses_stream_ = false;             // In the last pause.
  std::optional<StepLog::Mark> since_;   // Where the interval began that has not ended.
  std::optional<StepLog::Mark> paused_;  // Where the last one ended.
};

}  // namespace spillway
