/// What steps had of their budget, and what follows from it for the next plan; internal.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "spillway/plan/budget_report.hpp"
#include "spillway/plan/plan.hpp"

namespace spillway {

/// Whether the plan is predicted to keep to its budget.
[[nodiscard]] bool fits(const Plan& plan);

class BudgetWatch {
 public:
  /// `drift`: as SessionOptions::drift.
  explicit BudgetWatch(double drift) : drift_(drift) {}

  /// What earlier steps had above another profile's prediction says nothing of this one's.
  void profile_replaced() noexcept;
  /// Another plan is executed: nothing was measured with it yet.
  void plan_replaced() noexcept;
  /// The plan that is executed was made with the present reserve.
  void plan_made() noexcept;

  // The reserve for untracked allocations.
  [[nodiscard]] Bytes reserve() const noexcept { return reserve_; }
  /// Grows the reserve by what the last measured step had above the budget of its plan, on any
  /// rank. Returns whether to replan with it. `planning`: a plan is being made already.
  [[nodiscard]] bool grow_reserve(const Plan& plan, bool planning);
  /// No plan leaves so much free: it does not grow again.
  void reserve_does_not_fit() noexcept;
  /// The plan with a larger reserve is not to be had.
  void reset_reserve() noexcept { reserve_ = planned_reserve_; }
  /// The largest excess over the budget on other ranks with the same plan.
  void note_excess_of_others(Bytes excess) noexcept { excess_of_others_ = excess; }

  // What was measured.
  void step_ended(const MeasuredStep& step, const Plan* plan);
  /// Of a step with the current plan.
  void note_time(Nanoseconds step) noexcept { measured_step_ = step; }
  [[nodiscard]] Bytes measured_peak() const noexcept { return measured_peak_; }
  /// How the last measured step differs from the prediction, one text for each difference.
  [[nodiscard]] std::vector<std::string> drift(const Plan* plan) const;
  /// Whether steps begin to differ from the prediction: once, until one is as predicted again.
  [[nodiscard]] bool begins_to_drift(bool drifts) noexcept;

  /// A warning about steps that no plan could hold to the budget; once. Empty: none.
  [[nodiscard]] std::string over_budget_warning(Bytes budget);
  /// Fills in what was measured.
  void report(BudgetReport& report, const Plan* plan) const;

 private:
  double drift_;
  std::map<StepKind, StepPeak> steps_;
  bool warned_ = false;
  bool as_predicted_ = true;
  Bytes reserve_;
  Bytes planned_reserve_;             // The same when the current plan was made.
  int corrections_ = 0;               // How often the reserve grew.
  std::uint64_t measured_steps_ = 0;  // With the current plan.
  Bytes measured_peak_;
  Nanoseconds measured_step_{};
  Bytes excess_of_others_;
  Bytes verification_peak_;
  std::uint64_t over_budget_steps_ = 0;  // As in the report.
};

}  // namespace spillway
