#include "torch/record/event_log.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <vector>

#include "spillway/trace/names.hpp"
#include "torch/record/storage_watch.hpp"

namespace spillway {

/// Logs that nobody reads any more.
struct EventLog::Pool {
  std::mutex mutex;
  std::vector<std::unique_ptr<StepLog>> idle;
  std::size_t made = 0;

  [[nodiscard]] static std::shared_ptr<StepLog> take(const std::shared_ptr<Pool>& pool) {
    std::unique_ptr<StepLog> log;
    {
      const std::lock_guard lock(pool->mutex);
      if (!pool->idle.empty()) {
        log = std::move(pool->idle.back());
        pool->idle.pop_back();
      } else {
        // Room for every log ever made: giving one back must not throw.
        pool->idle.reserve(++pool->made);
        log = std::make_unique<StepLog>();
      }
    }
    return {log.release(), [pool](StepLog* done) {
              const std::lock_guard lock(pool->mutex);
              pool->idle.emplace_back(done);
            }};
  }
};

EventLog::EventLog(TorchDevice& device) : device_(&device), pool_(std::make_shared<Pool>()) {}

void EventLog::begin(std::uint64_t step, const StepLog::Needs& needs, StorageWatch* watch,
                     std::optional<TimeMark> epoch) {
  discard();
  ++steps_;
  if (!needs.any()) return;
  log_ = Pool::take(pool_);
  clear(*log_);
  log_->step = step;
  log_->needs = needs;
  log_->counts_saved = watch != nullptr;
  log_->epoch = std::move(epoch);
  watch_ = watch;
  if (needs.step_time) log_->begin = mark();
  if (!needs.compute) return;
  log_->at_start = log_->peak = device_->allocated();
  since_.reset();
  paused_.reset();
  pauses_ = 1;
  times_compute_ = true;
}

void EventLog::clear(StepLog& log) {
  log.marked = 0;
  log.begin.reset();
  log.end.reset();
  log.waits.clear();
  log.intervals.clear();
  log.moments.clear();
  log.works.clear();
  log.copies.clear();
  log.names.clear();
  log.failed = false;
  log.at_start = log.peak = Bytes();
}

std::shared_ptr<const StepLog> EventLog::end() noexcept {
  pause();
  times_compute_ = false;
  if (log_ != nullptr && log_->begin) log_->end = mark();
  return std::exchange(log_, nullptr);
}

void EventLog::discard() noexcept {
  times_compute_ = false;
  log_.reset();
}

void EventLog::pause() noexcept {
  if (!times_compute_ || pauses_++ > 0) return;
  uses_stream_ = false;
  paused_ = since_ ? mark() : std::nullopt;
  if (!paused_) return fail();
  try {
    StepLog::Interval interval;
    interval.begin = *std::exchange(since_, std::nullopt);
    interval.end = *paused_;
    if (log_->needs.memory) {
      interval.peak = take_peak();
      interval.allocated = interval.peak_after = above_start(device_->allocated());
    }
    if (watch_ != nullptr) interval.saved = watch_->bytes();
    log_->intervals.push_back(interval);
  } catch (const std::exception&) {
    fail();
  }
}

void EventLog::resume() noexcept {
  if (!times_compute_ || --pauses_ > 0) return;
  try {
    if (log_->needs.memory) {
      const std::int64_t peak = take_peak();
      if (!log_->intervals.empty()) {
        std::int64_t& after = log_->intervals.back().peak_after;
        after = std::max(after, peak);
      }
    }
    if (watch_ != nullptr) watch_->refresh();
    const bool goes_on = paused_ && device_->computes_beside() && !uses_stream_;
    since_ = goes_on ? paused_ : mark();
  } catch (const std::exception&) {
    fail();
  }
  if (!since_) fail();
}

int EventLog::name(const std::string& scope, const std::string& call) {
  if (!traces()) return -1;
  log_->names.push_back(name_in(scope, call));
  return static_cast<int>(log_->names.size()) - 1;
}

void EventLog::copied_out(int pass, int buffer, std::uint64_t ticket) {
  if (traces()) log_->copies.push_back({ticket, pass, buffer});
}

EventLog::Begun EventLog::begin_work() noexcept {
  if (!traces()) return {};
  const std::optional<StepLog::Mark> begin = mark();
  return begin ? Begun{steps_, *begin} : Begun{};
}

void EventLog::end_work(const Begun& begun, StepLog::Work::Kind kind, int pass, int buffer,
                        Bytes bytes) {
  if (!traces() || begun.steps != steps_) return;
  const std::optional<StepLog::Mark> end = mark();
  if (end) log_->works.push_back({kind, pass, buffer, bytes, begun.at, *end});
}

std::int64_t EventLog::above_start(Bytes bytes) const {
  return static_cast<std::int64_t>(bytes.count()) -
         static_cast<std::int64_t>(log_->at_start.count());
}

std::int64_t EventLog::take_peak() {
  const Bytes peak = device_->take_peak();
  log_->peak = std::max(log_->peak, peak);
  return above_start(peak);
}

std::optional<StepLog::Mark> EventLog::mark(Stream& stream) noexcept {
  try {
    if (log_->marked == log_->marks.size()) log_->marks.emplace_back();
    device_->mark(stream, log_->marks[log_->marked]);
    return log_->marked++;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::optional<StepLog::Mark> EventLog::mark() noexcept {
  try {
    return mark(device_->current_stream());
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace spillway
