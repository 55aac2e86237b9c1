/// The position of a step in its announced order of passes; internal. Under the session's lock.
#pragma once

#include <cstddef>
#include <optional>

#include "spillway/plan/schedule.hpp"

namespace spillway {

class ScheduleFollower {
 public:
  /// A step begins. `schedule` is valid; empty: the order is unknown.
  void begin(PassSchedule schedule);

  /// The forward or the backward of a pass begins. Backwards may be skipped: the session does not
  /// see the backward of a pass without managed buffers.
  /// Returns false if the schedule has another pass next; once a step, because the step no longer
  /// follows the schedule then.
  [[nodiscard]] bool advance(const PassStep& step);

  /// The step ends. Returns false if the schedule still has a forward.
  [[nodiscard]] bool complete();

  /// Whether there is a schedule and the step has followed it so far.
  [[nodiscard]] bool on_schedule() const noexcept { return on_schedule_; }
  [[nodiscard]] const PassSchedule& schedule() const noexcept { return schedule_; }

  /// The next backward of the schedule; empty if there is none or the order is unknown.
  [[nodiscard]] std::optional<PassStep> next_backward() const;
  /// Whether the backward of the pass whose forward ran last precedes any other forward.
  [[nodiscard]] bool backward_is_near() const;

 private:
  PassSchedule schedule_;
  std::size_t next_ = 0;
  bool on_schedule_ = false;
};

}  // namespace spillway
