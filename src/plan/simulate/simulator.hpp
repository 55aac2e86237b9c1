/// simulate() and set_residency() for many plans of one profile: what follows from the profile
/// alone is found once.
#pragma once

#include <vector>

#include "plan/profile/pass_model.hpp"
#include "plan/simulate/byte_targets.hpp"
#include "plan/simulate/step_walk.hpp"
#include "spillway/plan/simulate.hpp"

namespace spillway {

/// Nanoseconds by index of the chunk and moment.
using AloneTimes = std::vector<std::vector<double>>;

/// Errors: InvalidArgument if the plan is of another structure than the profile.
void require_made_for(const Plan& plan, const Profile& profile);

class Simulator {
 public:
  /// Keeps a reference to the profile. An empty schedule: one_pass().
  /// Errors: as simulate(), but for those of plans.
  explicit Simulator(const Profile& profile, PassSchedule schedule = {},
                     const ShardModel& shard = {});

  /// Precondition: the plan was made for the profile.
  /// Errors: as replays_of().
  [[nodiscard]] Simulation run(const Plan& plan, const Limits& windows = {},
                               bool trace = false) const;

  /// The engine's commands in that step: those that it gives a session under the plan.
  [[nodiscard]] CommandLog commands(const Plan& plan, const Limits& windows = {}) const;

  /// What the profile's moments would take without copies, if their times are those of passes
  /// under the plan; by chunk and moment. Same precondition.
  [[nodiscard]] AloneTimes times_alone(const Plan& plan, const Limits& windows = {}) const;

  /// As set_residency(), with the same precondition. Returns the limits that its lists are from.
  ByteTargets set_residency(Bytes budget, Plan& plan) const;
  /// Gives the plan, instead of any it has, the lists of the step under these targets, and a cap.
  /// Returns the peak. Same precondition.
  std::int64_t set_residency(const ByteTargets& targets, Plan& plan) const;
  /// The same under the plan's windows or, where it has none, these; and no cap.
  void set_residency_of_windows(const Limits& windows, Plan& plan) const;

  /// Lowers the limits on what is pending release and prefetched to little that costs no time, by
  /// what a layer offloads, and sets the plan's lists. Where there is none nothing changes.
  void limit_pending_release(ByteTargets& targets, Plan& plan) const;

  [[nodiscard]] const std::vector<PassModel>& models() const noexcept { return models_; }
  [[nodiscard]] const PassSchedule& schedule() const noexcept { return schedule_; }
  [[nodiscard]] const ShardModel& shard() const noexcept { return shard_; }

 private:
  [[nodiscard]] std::vector<PlannedChunk> planned_chunks(const Plan& plan) const;
  void record(const StepLimits& limits, StepListener& listener, Plan& plan) const;
  Simulation run(const Plan& plan, const Limits& windows, bool trace, AloneTimes* alone) const;

  const Profile& profile_;
  PassSchedule schedule_;
  ShardModel shard_;
  std::vector<PassModel> models_;  // By chunk.
};

}  // namespace spillway
