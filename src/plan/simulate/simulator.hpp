/// simulate() and set_allowances() for many plans of one profile: what follows from the profile
/// alone is found once.
#pragma once

#include <vector>

#include "plan/profile/pass_model.hpp"
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

  /// As set_allowances(), with the same precondition.
  void set_allowances(Bytes budget, Plan& plan) const;

  /// Sets max_pending_release and max_prefetch of a plan with allowances to little that costs no
  /// time, by what a layer offloads; nothing where there is none.
  void limit_pending_release(Plan& plan) const;

  [[nodiscard]] const std::vector<PassModel>& models() const noexcept { return models_; }
  [[nodiscard]] const PassSchedule& schedule() const noexcept { return schedule_; }
  [[nodiscard]] const ShardModel& shard() const noexcept { return shard_; }

 private:
  [[nodiscard]] std::vector<PlannedChunk> planned_chunks(const Plan& plan) const;
  /// Where the copies that are skipped begin, once that is the same in each step.
  [[nodiscard]] StepWalk::Tails settled_tails(const std::vector<PlannedChunk>& chunks,
                                              const StepLimits& limits) const;
  Simulation run(const Plan& plan, const Limits& windows, bool trace, AloneTimes* alone) const;

  const Profile& profile_;
  PassSchedule schedule_;
  ShardModel shard_;
  std::vector<PassModel> models_;  // By chunk.
};

}  // namespace spillway
