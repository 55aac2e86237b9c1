#include "plan/control/budget_watch.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "spillway/core/numbers.hpp"

namespace spillway {
namespace {

/// How often the session replans because a measured peak was over the budget.
constexpr int kMaxCorrections = 3;

/// Whether such a step may have more than the plan allows.
bool may_be_over_budget(StepKind kind) {
  switch (kind) {
    case StepKind::kRecording:
    case StepKind::kUnplanned:
    case StepKind::kDiverged:
      return true;
    case StepKind::kVerification:
    case StepKind::kTraced:
    case StepKind::kPlanned:
      return false;
  }
  return false;
}

/// "the peak is 8.0 GiB, 14.2 % more than predicted"; nothing within `share`.
std::optional<std::string> drift_of(const std::string& what, double measured, double predicted,
                                    double share) {
  if (predicted <= 0) return std::nullopt;
  const double off = measured / predicted - 1;
  if (std::abs(off) <= share) return std::nullopt;
  return what + ", " + with_decimals(100 * std::abs(off), 1) +
         (off > 0 ? " % more than predicted" : " % less than predicted");
}

}  // namespace

bool fits(const Plan& plan) {
  return !plan.budget || plan.predicted_peak.value_or(Bytes(0)) <= *plan.budget;
}

void BudgetWatch::profile_replaced() noexcept {
  reserve_ = planned_reserve_ = {};
  corrections_ = 0;
}

void BudgetWatch::plan_replaced() noexcept {
  measured_step_ = {};
  measured_peak_ = {};
  measured_steps_ = 0;
  verification_peak_ = {};
}

void BudgetWatch::plan_made() noexcept {
  planned_reserve_ = reserve_;
  excess_of_others_ = {};
}

bool BudgetWatch::grow_reserve(const Plan& plan, bool planning) {
  if (!plan.budget || !fits(plan)) return false;
  const Bytes own = measured_peak_ - std::min(measured_peak_, *plan.budget);
  const Bytes excess = std::max(own, std::exchange(excess_of_others_, {}));
  if (excess == Bytes(0) || planning || corrections_ >= kMaxCorrections) return false;
  // The allocator may round requests up, and sizes may change.
  ++corrections_;
  reserve_ += excess;
  return true;
}

void BudgetWatch::reserve_does_not_fit() noexcept { corrections_ = kMaxCorrections; }

void BudgetWatch::step_ended(const MeasuredStep& step, const Plan* plan) {
  StepPeak& all = steps_[step.kind];
  ++all.steps;
  all.peak = std::max(all.peak, step.peak);
  if (step.kind == StepKind::kVerification) verification_peak_ = step.peak;
  if (step.kind == StepKind::kPlanned) {
    ++measured_steps_;
    measured_peak_ = step.peak;
  }
  const bool counts = step.kind == StepKind::kPlanned || step.kind == StepKind::kTraced ||
                      step.kind == StepKind::kDiverged;
  if (counts && plan->budget && step.peak > *plan->budget) ++over_budget_steps_;
}

std::vector<std::string> BudgetWatch::drift(const Plan* plan) const {
  std::vector<std::string> lines;
  if (plan == nullptr || !plan->predicted_step_ns || !plan->predicted_peak) return lines;
  const auto add = [&](const std::optional<std::string>& line) {
    if (line) lines.push_back(*line);
  };
  if (measured_step_.count() > 0) {
    const auto ns = static_cast<double>(measured_step_.count());
    add(drift_of("the step takes " + with_decimals(ns / 1e6, 2) + " ms", ns,
                 static_cast<double>(*plan->predicted_step_ns), drift_));
  }
  if (measured_peak_ > Bytes(0)) {
    add(drift_of("the peak is " + to_string(measured_peak_),
                 static_cast<double>(measured_peak_.count()),
                 static_cast<double>(plan->predicted_peak->count()), drift_));
  }
  return lines;
}

bool BudgetWatch::begins_to_drift(bool drifts) noexcept {
  return std::exchange(as_predicted_, !drifts) && drifts;
}

std::string BudgetWatch::over_budget_warning(Bytes budget) {
  if (warned_ || budget == Bytes(0)) return {};
  std::string steps;
  for (const auto& [kind, of_kind] : steps_) {
    if (!may_be_over_budget(kind) || of_kind.peak <= budget) continue;
    steps += (steps.empty() ? "" : ", ") + std::string(to_string(kind)) + " steps: up to " +
             to_string(of_kind.peak);
  }
  if (steps.empty()) return {};
  warned_ = true;
  return "[budget] steps had more than the budget of " + to_string(budget) + " (" + steps +
         "): no plan holds for such steps. The report has their number and their peaks. This "
         "warning appears once per session.";
}

void BudgetWatch::report(BudgetReport& report, const Plan* plan) const {
  report.steps = steps_;
  if (const auto found = steps_.find(StepKind::kUnplanned); found != steps_.end()) {
    report.unplanned_steps = found->second.steps;
  }
  report.measured_steps = measured_steps_;
  report.measured_peak = measured_peak_;
  report.verification_peak = verification_peak_;
  report.measured_step = measured_step_;
  report.drift = drift(plan);
  report.over_budget_steps = over_budget_steps_;
}

}  // namespace spillway
