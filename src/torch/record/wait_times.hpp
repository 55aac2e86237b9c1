/// How long streams waited in a step, by cause, from its log; internal.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "spillway/torch/session_report.hpp"
#include "torch/record/step_log.hpp"

namespace spillway {

/// Blocks until the waits are over. Empty if the device has failed.
[[nodiscard]] std::optional<WaitTotals> wait_totals(const StepLog& log, TorchDevice& device);

/// Chooses the steps whose waits are timed, and keeps what the last of them waited. Under the
/// session's lock.
///
/// Logs are read when the next step that may be timed begins, if all its waits are over by then
/// (else that step is not timed unless it must be), or when a report is requested.
class WaitTimes {
 public:
  /// Times the first two steps after each recording step, and then every N-th; `every` 0: none.
  WaitTimes(TorchDevice& device, int every) : device_(&device), every_(every) {}

  /// Whether the step that begins is timed; `wanted`: it is in any case.
  [[nodiscard]] bool begin_step(bool recorded, bool wanted = false);
  /// A timed step has ended.
  void end_step(std::shared_ptr<const StepLog> log) noexcept { unread_ = std::move(log); }

  /// Takes the log of the last timed step, for wait_totals(); null if that was read.
  [[nodiscard]] std::shared_ptr<const StepLog> take() noexcept {
    return std::exchange(unread_, nullptr);
  }
  void keep(const std::optional<WaitTotals>& totals);

  /// Of the last timed step that was read.
  [[nodiscard]] const WaitTotals& last() const noexcept { return last_; }

 private:
  TorchDevice* device_;
  int every_;
  std::int64_t since_recording_ = 0;
  std::shared_ptr<const StepLog> unread_;
  WaitTotals last_;
};

}  // namespace spillway
