/// How long a step took on the device, from its log; internal.
#pragma once

#include <exception>
#include <optional>

#include "torch/record/step_log.hpp"

namespace spillway {

/// Whether step_time() would not block. Never blocks itself.
[[nodiscard]] inline bool step_time_known(const StepLog& log, const TorchDevice& device) {
  return !log.end || log.has_happened(*log.end, device);
}

/// Empty where it was not noted, or if the device has failed. Blocks until the step is over there.
[[nodiscard]] inline std::optional<Nanoseconds> step_time(const StepLog& log,
                                                          TorchDevice& device) noexcept {
  if (!log.begin || !log.end) return std::nullopt;
  try {
    return log.between(*log.begin, *log.end, device);
  } catch (const std::exception&) {
    return std::nullopt;  // The next use of the failed device throws.
  }
}

}  // namespace spillway
