/// What the plan controller needs of the session that it controls; internal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/control/time_updates.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/shard.hpp"

namespace spillway {

/// Under what the planner plans, besides the profile.
struct PlanningConditions {
  Bytes device;  ///< Memory of the device that is free, or allocated by this process.
  Bytes host;    ///< The capacity of the tier.
  /// As PlannerOptions::equal; where ranks plan together.
  std::vector<std::vector<bool>> equal;
};

/// Who plans, where the ranks of a shard group have one plan for all.
struct PlanningRanks {
  bool together = false;
  bool first = true;  ///< This rank plans for the others.
};

/// All functions are called under the session's lock.
class ControlledSession {
 public:
  ControlledSession() = default;
  ControlledSession(const ControlledSession&) = delete;
  ControlledSession& operator=(const ControlledSession&) = delete;

  /// Changes decisions of a plan that is about to be adopted: what an earlier step found must not
  /// be moved is kept. Returns whether there were any.
  [[nodiscard]] virtual bool amend(Plan& plan) const = 0;
  /// The next step executes another plan: what was learned under the last one is void.
  virtual void plan_adopted() = 0;
  /// The plan has other decisions or windows, which the next step executes.
  virtual void plan_revised() = 0;
  /// Decisions of the plan, its profile or its schedule have changed: gives it other residency
  /// lists, if it is to have some.
  virtual void renew_lists() = 0;

  virtual void count_fallback(const std::string& reason) = 0;
  /// Counts the exception that is being handled.
  virtual void note_failure(const char* where) noexcept = 0;
  virtual void warn(const std::string& text) = 0;

  [[nodiscard]] virtual PlanningConditions conditions() const = 0;
  [[nodiscard]] virtual PlanningRanks ranks() const = 0;
  /// The ranks that share what is sharded.
  [[nodiscard]] virtual ShardModel shard_model() const = 0;
  /// On the device, by this process.
  [[nodiscard]] virtual Bytes allocated() const = 0;

  /// The device has finished the step that was timed.
  [[nodiscard]] virtual bool have_times_happened() = 0;
  /// Waits for that, and fills the times in. Returns whether the device could tell them.
  [[nodiscard]] virtual bool resolve_times() = 0;
  /// Of the step with that number; empty if another one was the last that was timed.
  [[nodiscard]] virtual std::optional<CopyWaits> copy_waits(std::uint64_t step) = 0;
  /// How long the last measured step took, if that is known and was not asked yet.
  [[nodiscard]] virtual std::optional<Nanoseconds> take_step_time() = 0;

 protected:
  ~ControlledSession() = default;
};

}  // namespace spillway
