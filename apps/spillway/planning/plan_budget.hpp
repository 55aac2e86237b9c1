/// What `spillway plan` does with a budget, a slowdown, or a curve of budgets.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "util/text/budget_text.hpp"

namespace spillway::app {

struct BudgetPlanOptions {
  std::string profile;
  std::string rules;  ///< May be empty.
  std::string out;    ///< Likewise: nothing is written then.
  std::optional<BudgetText> budget;
  std::optional<double> max_slowdown;  ///< Instead of a budget.
  std::optional<Bytes> host;
  std::optional<double> time_limit;  ///< Seconds.
  std::optional<double> gap;
  std::vector<BudgetText> budgets;  ///< Of a curve; empty: the planner chooses.
  std::string svg;                  ///< Of a curve; may be empty.
};

/// Prints the plan's summary. Both give the exit code.
/// Errors: as plan_for_budget().
[[nodiscard]] int run_plan_for_budget(const BudgetPlanOptions& options);

/// Prints the curve's table; kInfeasible if no budget has a plan.
/// Errors: as plan_curve().
[[nodiscard]] int run_plan_curve(const BudgetPlanOptions& options);

}  // namespace spillway::app
