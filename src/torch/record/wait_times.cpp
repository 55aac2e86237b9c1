#include "torch/record/wait_times.hpp"

#include <algorithm>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

Nanoseconds& of_cause(WaitTotals& totals, WaitCause cause) {
  switch (cause) {
    case WaitCause::kRelease:
      return totals.release;
    case WaitCause::kReload:
      return totals.reload;
    case WaitCause::kInPlace:
      return totals.in_place;
    case WaitCause::kGather:
      return totals.gather;
  }
  return totals.gather;
}

}  // namespace

std::optional<WaitTotals> wait_totals(const StepLog& log, TorchDevice& device) {
  WaitTotals totals;
  totals.step = log.step;
  try {
    for (const StepLog::Wait& wait : log.waits) {
      of_cause(totals, wait.cause) += log.between(wait.begin, wait.end, device);
    }
  } catch (const Error&) {
    return std::nullopt;  // The next use of the failed stream throws; a report does not.
  }
  return totals;
}

bool WaitTimes::begin_step(bool recorded, bool wanted) {
  const std::int64_t number = since_recording_;
  since_recording_ = recorded ? 0 : number + 1;
  const bool due = !recorded && every_ > 0 && (number == 1 || number % every_ == 0);
  if (!due && !wanted) return false;
  if (unread_ == nullptr) return true;
  const bool over = std::ranges::all_of(unread_->waits, [this](const StepLog::Wait& wait) {
    return unread_->has_happened(wait.end, *device_);
  });
  if (over) keep(wait_totals(*take(), *device_));
  return over || wanted;
}

void WaitTimes::keep(const std::optional<WaitTotals>& totals) {
  if (totals && totals->step > last_.step) last_ = *totals;
}

}  // namespace spillway
