/// Where time comes from, so that tests can decide what time it is.
#pragma once

#include <chrono>

namespace spillway {

using Nanoseconds = std::chrono::nanoseconds;

/// Monotonic time since a point that is fixed for one clock. Safe to call from any thread.
class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;

  [[nodiscard]] virtual Nanoseconds now() const noexcept = 0;
};

/// The machine's steady clock.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] Nanoseconds now() const noexcept override {
    return std::chrono::steady_clock::now().time_since_epoch();
  }
};

}  // namespace spillway
