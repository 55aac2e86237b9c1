/// How steps met their budget, as values of a session's report.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/core/clock.hpp"

namespace spillway {

/// What a step did. Only planned ones show whether a plan keeps to its budget.
enum class StepKind {
  kRecording,     ///< Recorded a profile, and offloaded what it could.
  kUnplanned,     ///< Had no plan yet, and offloaded what it could.
  kVerification,  ///< Executed the plan, and also saved what it recomputes.
  kDiverged,      ///< A pass was not as profiled, passes had another order, or none had a backward.
  kTraced,        ///< Executed the plan and was traced.
  kPlanned,       ///< Executed the plan.
};

/// "recording", "unplanned", "verification", "diverged", "traced", "planned".
[[nodiscard]] std::string_view to_string(StepKind kind);

struct MeasuredStep {
  std::uint64_t number = 0;  ///< Counted from 1.
  StepKind kind{};
  Bytes before;  ///< Allocated on the device when it began.
  Bytes peak;    ///< Beyond that.
};

/// All steps of one kind.
struct StepPeak {
  std::uint64_t steps = 0;
  Bytes peak;  ///< The largest, beyond what was allocated before the step.
};

/// How a budget was met.
struct BudgetReport {
  Bytes budget;  ///< 0 as long as it is not known: a share, or what is free, before the first plan.
  /// All steps so far, under all plans; kinds that there were.
  std::map<StepKind, StepPeak> steps;
  std::uint64_t unplanned_steps = 0;  ///< Steps that ran before there was a plan.
  std::uint64_t plans = 0;            ///< Made so far.
  bool planned = false;               ///< The current plan was made for the budget.
  std::string problem;                ///< The planner's last error, if no plan fits.
  Nanoseconds predicted_step{};       ///< With the current plan.
  Nanoseconds base_step{};            ///< Predicted with everything kept.
  Nanoseconds bound_step{};           ///< Lower bound: no plan of this kind is faster.
  Bytes predicted_peak;               ///< Beyond what is allocated before a step.
  std::uint64_t measured_steps = 0;   ///< Planned steps under the current plan.
  /// Of the last one of them, counted in the same way. 0: none yet.
  Bytes measured_peak;
  /// Of the last verification step, which has what a layer recomputes twice. Over the budget only
  /// if too little of the rest could be offloaded.
  Bytes verification_peak;
  Nanoseconds measured_step{};     ///< Of the last measured step with this plan. 0: none yet.
  std::vector<std::string> drift;  ///< How the last measured step differs from the prediction.
  /// Planned, traced and diverged steps whose peak was over the budget, for example because of
  /// larger inputs.
  std::uint64_t over_budget_steps = 0;
};

}  // namespace spillway
