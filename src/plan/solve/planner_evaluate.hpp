/// Evaluates the planner's choices: the plan that a session would execute, and its simulation.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "plan/policy/match.hpp"
#include "plan/recompute/weigh.hpp"
#include "plan/simulate/simulator.hpp"
#include "plan/solve/milp_slots.hpp"
#include "plan/solve/planner_space.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/planner.hpp"
#include "spillway/plan/simulate.hpp"

namespace spillway {

struct Evaluated {
  Plan plan;  ///< With residency lists.
  ByteTargets targets;
  Simulation simulation;
  std::int64_t excess = 0;  ///< Bytes above the budget, 0: it fits.

  [[nodiscard]] bool fits() const { return excess == 0; }
  /// A plan that fits is better than one that does not; then the faster, then the one that moves
  /// less.
  [[nodiscard]] bool better_than(const Evaluated& other) const;
};

class Evaluator {
 public:
  /// Keeps references to the profile and the rules, which are translated.
  /// Errors: as simulate() for profile and schedule.
  Evaluator(const Profile& profile, const Rules& rules, const PassSchedule& schedule,
            const ShardModel& shard = {});

  [[nodiscard]] const std::vector<ChunkSpace>& spaces() const { return spaces_; }
  [[nodiscard]] const PassSchedule& schedule() const { return simulator_.schedule(); }
  [[nodiscard]] const Simulator& simulator() const { return simulator_; }

  [[nodiscard]] const KeptBytes& kept_bytes() const { return kept_bytes_; }

  [[nodiscard]] Plan plan(const Choice& choice);
  [[nodiscard]] Evaluated evaluate(const Choice& choice, std::int64_t budget);
  /// Sets residency lists and simulates.
  [[nodiscard]] Evaluated evaluate(Plan plan, std::int64_t budget);
  /// By slot: by how much the plan, with its lists, exceeds the budget.
  [[nodiscard]] std::vector<std::int64_t> excess_by_slot(const Plan& plan, const Slots& slots,
                                                         std::int64_t budget) const;
  [[nodiscard]] PlanningEffort& effort() { return effort_; }

 private:
  void walk(const Plan& plan, StepListener& listener) const;

  const Rules& rules_;
  Simulator simulator_;
  std::string structure_;
  std::deque<Matcher> matchers_;    // By chunk.
  std::deque<Weights> weights_;     // By chunk.
  std::vector<ChunkSpace> spaces_;  // By chunk.
  KeptBytes kept_bytes_;
  PlanningEffort effort_;
};

}  // namespace spillway
