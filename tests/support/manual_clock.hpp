/// A clock that advances only when a test sets it.
#pragma once

#include <atomic>

#include "spillway/core/clock.hpp"

namespace spillway::testing {

class ManualClock final : public Clock {
 public:
  [[nodiscard]] Nanoseconds now() const noexcept override {
    const Nanoseconds time(now_.load());
    ++readings_;
    return time;
  }
  void advance(Nanoseconds by) noexcept { now_ += by.count(); }

  /// How often the time was asked for: a test can wait until somebody has looked at it.
  [[nodiscard]] int readings() const noexcept { return readings_; }

 private:
  std::atomic<Nanoseconds::rep> now_{0};
  mutable std::atomic<int> readings_{0};
};

}  // namespace spillway::testing
