#include "torch/record/wait_times.hpp"

#include <algorithm>

#include "spillway/core/error.hpp"

namespace spillway {

void WaitTimes::begin_step(std::uint64_t step, bool recorded, bool wanted) {
  timing_ = false;
  const std::int64_t number = since_recording_;
  since_recording_ = recorded ? 0 : number + 1;
  const bool due = !recorded && every_ > 0 && (number == 1 || number % every_ == 0);
  if (!due && !wanted) return;
  if (marks_.step != 0) {
    const bool happened = have_happened();
    if (!happened && !wanted) return;
    if (happened) keep(read(marks_));
  }
  marks_.step = step;
  marks_.waits.clear();
  timing_ = true;
}

std::optional<TimeMark> WaitTimes::mark(Stream& stream) {
  try {
    return device_->mark_on(stream);
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool WaitTimes::have_happened() const {
  return std::all_of(marks_.waits.begin(), marks_.waits.end(),
                     [this](const Wait& wait) { return device_->has_happened(wait.end); });
}

std::optional<WaitTimes::Marks> WaitTimes::take() {
  if (timing_ || marks_.step == 0) return std::nullopt;
  return std::exchange(marks_, {});
}

std::optional<WaitTotals> WaitTimes::read(const Marks& marks) const {
  WaitTotals totals;
  totals.step = marks.step;
  try {
    for (const Wait& wait : marks.waits) {
      const Nanoseconds time = device_->elapsed(wait.begin, wait.end);
      switch (wait.cause) {
        case WaitCause::kRelease:
          totals.release += time;
          break;
        case WaitCause::kReload:
          totals.reload += time;
          break;
        case WaitCause::kInPlace:
          totals.in_place += time;
          break;
        case WaitCause::kGather:
          totals.gather += time;
          break;
      }
    }
  } catch (const Error&) {
    return std::nullopt;  // The next use of the failed stream throws; a report does not.
  }
  return totals;
}

void WaitTimes::keep(const std::optional<WaitTotals>& totals) {
  if (totals && totals->step > last_.step) last_ = *totals;
}

}  // namespace spillway
