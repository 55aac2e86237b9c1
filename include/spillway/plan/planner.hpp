/// From a budget in bytes to the best plan, with a lower bound on its step time.
///
/// The planner solves a MILP model of the recorded pass (docs/planner.md), then simulates a session
/// under the plan. Where the simulation needs more memory than the model predicted, it solves again
/// with a smaller budget, until the simulated plan fits. Deterministic: the same profile and
/// options give the same plan.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"
#include "spillway/plan/schedule.hpp"
#include "spillway/plan/shard.hpp"

namespace spillway {

/// Decision::reason of what the planner keeps because there is room for it, not because of a rule
/// or the profile.
inline constexpr std::string_view kKeptByPlanner = "planner: keep";

struct PlannerOptions {
  /// The limit on the peak of a step above what is allocated before it.
  Bytes budget;
  /// The part of `budget` that the plan leaves free for untracked allocations; less of it where no
  /// plan fits the rest.
  Bytes reserve = {};
  /// Instead of `budget`: the smallest memory with which a step takes at most so many times as long
  /// as if everything were kept. More than 1.
  std::optional<double> max_slowdown = {};
  /// What rules match is pinned to their action; the planner decides the rest. Limits hold too:
  /// `host` is a constraint, smaller buffers than `min_size` are kept.
  Rules rules = {};
  PassSchedule schedule = {};  ///< Empty: one_pass().
  /// The ranks that share what is sharded. The MILP model counts what rules pin to be
  /// sharded as whole, the simulator as a part.
  ShardModel shard = {};
  /// By chunk of the profile, then by buffer: whether it is equal on all ranks and may be sharded.
  /// Empty: only what rules shard.
  std::vector<std::vector<bool>> equal = {};
  /// The search assumes links slower by this share than profiled, less than 1, so that faster
  /// compute or a slower copy than profiled costs no time. Predictions and bounds use the profiled
  /// links.
  double link_margin = 0.02;
  /// The search ends when the gap between plan and lower bound is at most this, or when the time
  /// limit is reached; then the best plan so far is returned.
  double gap = 1e-3;
  std::chrono::milliseconds time_limit{5000};
  /// Called from the planning thread with what is being done. May be empty.
  std::function<void(const std::string&)> progress = {};
  /// Called from the planning thread as soon as a plan is known that fits. May be empty.
  std::function<void()> fits = {};
  /// Asked from the planning thread; true ends the search like the time limit. May be empty.
  std::function<bool()> unwanted = {};
};

/// What planning took, on the clock of the planning thread. Nothing depends on it.
struct PlanningEffort {
  int evaluations = 0;                       ///< Plans that were simulated to judge them.
  std::chrono::nanoseconds solving{};        ///< MILP models: to make and to solve them.
  std::chrono::nanoseconds simulating{};     ///< Plans: allowances, memory, times.
  std::chrono::nanoseconds recomputation{};  ///< Plans: which calls are repeated, from what.
};

/// A plan and how good it is. Times and bytes are those of the simulator.
struct PlannedStep {
  Plan plan;                 ///< With predictions, bound and lists.
  std::int64_t base_ns = 0;  ///< Of a step in which everything is kept.
  Bytes base_peak;           ///< The peak of that step.
  std::int64_t step_ns = 0;
  Bytes peak;      ///< With what is reserved.
  Bytes reserved;  ///< At most PlannerOptions::reserve.
  /// Of plan_or_smallest(): why no plan fits, with the smallest budget that has a plan, the moment
  /// and scope that set it, and what would lower it. Empty: this one fits.
  std::string problem;
  /// The lower bounds on the step time under the budget: of the relaxed MILP model,
  std::int64_t bound_ns = 0;
  /// and from bytes and speeds alone.
  std::int64_t closed_bound_ns = 0;
  double gap = 0;           ///< step_ns over bound_ns, less 1.
  bool within_gap = false;  ///< Solved to PlannerOptions::gap within the time limit.
  int rounds = 0;           ///< How often it was solved.
  std::chrono::milliseconds time{};
  PlanningEffort effort;
};

/// Errors: PlanInfeasible with the smallest budget that has a plan, the moment and scope that set
/// it, and what would lower it; InvalidArgument for a profile without a timeline or with one link
/// speed of two; as translate() for rules.
[[nodiscard]] PlannedStep plan_for_budget(const Profile& profile, const PlannerOptions& options);

/// As plan_for_budget(), but where no plan fits: the one with the smallest peak that was found, and
/// PlannedStep::problem.
/// Errors: as plan_for_budget(); PlanInfeasible only with PlannerOptions::max_slowdown.
[[nodiscard]] PlannedStep plan_or_smallest(const Profile& profile, const PlannerOptions& options);

/// The smallest budget that has a plan, and what sets it.
struct SmallestBudget {
  Bytes budget;
  std::string scope;
  std::string what;
};
[[nodiscard]] SmallestBudget smallest_budget(const Profile& profile, const PlannerOptions& options);

/// One budget of a curve.
struct CurvePoint {
  Bytes budget;
  bool feasible = false;
  std::int64_t step_ns = 0;
  std::int64_t bound_ns = 0;
  Bytes peak;
  Bytes kept;  ///< Of what autograd saves and may be moved: by action.
  Bytes offloaded;
  Bytes recomputed;
};

/// Plans for each of `budgets`; empty: about a dozen between the smallest one and everything kept.
/// `options.budget` and `options.max_slowdown` are not looked at.
[[nodiscard]] std::vector<CurvePoint> plan_curve(const Profile& profile,
                                                 const PlannerOptions& options,
                                                 std::vector<Bytes> budgets = {});

}  // namespace spillway
