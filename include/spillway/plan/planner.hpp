/// A budget in bytes in, the best plan out, with its lower bound beside it.
///
/// The planner solves a mixed-integer programme over the recorded pass (docs/planner.md), then asks
/// the simulator what a session would do with the plan; where that needs more memory than the
/// programme thought, it solves again with less, until the simulated plan fits.
/// Same profile and options, same plan.
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

/// Decision::reason of what is kept because there is room for it, not because a rule or the profile
/// says so.
inline constexpr std::string_view kKeptByPlanner = "planner: keep";

struct PlannerOptions {
  /// The most a step may have allocated at once above what is there before it.
  Bytes budget;
  /// Instead of `budget`: the smallest memory with which a step takes at most so many times as long
  /// as if everything were kept. More than 1.
  std::optional<double> max_slowdown = {};
  /// What rules match is pinned to their action; the planner decides the rest. Limits hold too:
  /// `host` is a constraint, smaller buffers than `min_size` are kept.
  Rules rules = {};
  PassSchedule schedule = {};  ///< Empty: one_pass().
  /// The ranks that share what is sharded. What rules pin to be sharded the programme weighs as
  /// whole, and the simulator as what it is.
  ShardModel shard = {};
  /// By chunk of the profile, then by buffer: what is equal on all ranks, and may be sharded.
  /// Empty: nothing but what rules shard.
  std::vector<std::vector<bool>> equal = {};
  /// The search takes links for so much slower than the profile says, less than 1: compute that
  /// runs faster than in the profile, or a copy that runs slower, then costs nothing. Relying on
  /// the last percents saves less than missing them costs. Predictions and bounds are for the
  /// profile's links.
  double link_margin = 0.02;
  /// The search ends when the plan is proven to be within this share of the best one, or when the
  /// time is up; then the best plan found so far is taken.
  double gap = 1e-3;
  std::chrono::milliseconds time_limit{5000};
  /// Called now and then from the thread that plans: what is being done. May be empty.
  std::function<void(const std::string&)> progress = {};
};

/// A plan and how good it is. Times and bytes are those of the simulator.
struct PlannedStep {
  Plan plan;                 ///< With predictions, bound and allowances.
  std::int64_t base_ns = 0;  ///< A step in which everything is kept,
  Bytes base_peak;           ///< and what it has allocated at most.
  std::int64_t step_ns = 0;
  Bytes peak;
  /// No plan of this kind that fits is faster: what the relaxed programme says,
  std::int64_t bound_ns = 0;
  /// and what follows from bytes and speeds alone.
  std::int64_t closed_bound_ns = 0;
  double gap = 0;       ///< step_ns over bound_ns, less 1.
  bool proven = false;  ///< The programme was solved to PlannerOptions::gap within the time.
  int rounds = 0;       ///< How often it was solved.
  std::chrono::milliseconds time{};
};

/// Errors: PlanInfeasible with the smallest budget that has a plan, the moment and scope that set
/// it, and what would lower it; InvalidArgument for a profile without a timeline or with one link speed of two;
/// as translate() for rules.
[[nodiscard]] PlannedStep plan_for_budget(const Profile& profile, const PlannerOptions& options);

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
