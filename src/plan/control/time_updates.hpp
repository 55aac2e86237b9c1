/// From the times of steps under a plan to a profile with these times; internal.
#pragma once

#include <utility>
#include <vector>

#include "plan/profile/timeline.hpp"
#include "spillway/core/clock.hpp"
#include "spillway/plan/simulate.hpp"

namespace spillway {

/// The recording step is slowed by the host and by its copies, so steps that execute a plan are
/// timed, and their times replace those of the profile.
class TimeUpdates {
 public:
  /// A step records: what was timed is of an earlier profile.
  void recording_begins() noexcept;
  void profile_replaced() noexcept { updates_ = 0; }
  /// What was timed under the last plan is not mixed with what is timed under this one.
  void plan_replaced() noexcept;

  /// Whether another step is to be timed for a new plan.
  [[nodiscard]] bool wanted() const noexcept;
  /// Adds a pass of a timed step, whose times are not known yet.
  void add(TimedPass pass) { timed_.push_back(std::move(pass)); }
  [[nodiscard]] bool any_unread() const noexcept { return !timed_.empty(); }
  /// The passes whose times can be known now. They are given back by add_read(), or are lost.
  [[nodiscard]] std::vector<TimedPass> take_unread() noexcept;
  /// The passes of one timed step, with their times.
  void add_read(std::vector<TimedPass> passes);
  /// Whether there are enough for an update; else another step is to be timed.
  [[nodiscard]] bool enough(const Profile& profile) const;
  /// All passes for the update. Precondition: enough().
  [[nodiscard]] std::vector<TimedPass> take_update() noexcept;

 private:
  int updates_ = 0;               // How often timed steps gave the profile new times.
  int timed_steps_ = 0;           // Since the last update.
  std::vector<TimedPass> timed_;  // Their times are not read yet.
  std::vector<TimedPass> read_;   // Read, but too few to update the profile.
};

/// How long the compute stream of a step waited for copies.
struct CopyWaits {
  Nanoseconds release{};
  Nanoseconds reload{};
};

/// Lowers the speed of one direction so that copying `bytes` takes `unpredicted_ns` longer than
/// predicted, but by at most 5 %, because one step is weak evidence. Ignores less than 0.2 % of a
/// step as noise. Returns whether it changed the speed.
[[nodiscard]] bool slow_down(double& alone, double& with_other, Bytes bytes, double unpredicted_ns,
                             double step_ns);

/// Lowers the speeds of the profile's link where the step under `plan` waited longer for copies
/// than it predicts. Returns whether it did.
/// Errors: as simulate().
[[nodiscard]] bool slow_link(Profile& profile, const Plan& plan, const CopyWaits& waits,
                             const SimulateOptions& options);

/// Whether the times of the two profiles differ so much that replanning is worth it.
[[nodiscard]] bool have_other_times(const Profile& before, const Profile& now);

}  // namespace spillway
