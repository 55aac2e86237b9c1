/// A clock that stands still until it is told.
#pragma once

#include <atomic>

#include "spillway/core/clock.hpp"

namespace spillway::testing {

class ManualClock final : public Clock {
 public:
  [[nodiscard]] Nanoseconds now() const noexcept override { return Nanoseconds(now_.load()); }
  void advance(Nanoseconds by) noexcept { now_ += by.count(); }

 private:
  std::atomic<Nanoseconds::rep> now_{0};
};

}  // namespace spillway::testing
