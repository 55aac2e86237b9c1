/// Where a step stands in the order of passes that it was announced with; internal. Under the
/// session's lock.
#pragma once

#include <cstddef>
#include <optional>

#include "spillway/plan/schedule.hpp"

namespace spillway {

class ScheduleFollower {
 public:
  /// A step begins. `schedule` is valid; empty: nobody said what will come.
  void begin(PassSchedule schedule);

  /// The forward or the backward of a pass begins. Backwards may be left out: a pass that saved
  /// nothing the session has in its hands shows none.
  /// Returns false if that is not what was to come; once a step, for nothing is known from then on.
  [[nodiscard]] bool takes(const PassStep& step);

  /// The step ends. Returns false if a forward was still to come.
  [[nodiscard]] bool ends();

  /// Whether there is a schedule that the step has followed so far.
  [[nodiscard]] bool knows() const noexcept { return knows_; }
  [[nodiscard]] const PassSchedule& schedule() const noexcept { return schedule_; }

  /// The next backward that is to come; nothing if none is, or nobody knows.
  [[nodiscard]] std::optional<PassStep> next_backward() const;
  /// Whether the backward of the pass whose forward came last is to come before any other forward.
  [[nodiscard]] bool backward_is_near() const;

 private:
  PassSchedule schedule_;
  std::size_t next_ = 0;
  bool knows_ = false;
};

}  // namespace spillway
