#include "planning/plan_budget.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "common/command_line.hpp"
#include "spillway/core/numbers.hpp"
#include "spillway/plan/curve.hpp"
#include "spillway/plan/explain.hpp"
#include "spillway/plan/planner.hpp"
#include "spillway/plan/simulate.hpp"
#include "util/files.hpp"
#include "util/text/progress.hpp"
#include "util/text/status_line.hpp"
#include "util/text/text_table.hpp"

namespace spillway::app {
namespace {

PlannerOptions planner_options(const BudgetPlanOptions& options, StatusLine& status) {
  PlannerOptions planner;
  if (!options.rules.empty()) planner.rules = load_rules(options.rules);
  if (options.host) planner.rules.limits.host = options.host;
  planner.max_slowdown = options.max_slowdown;
  planner.gap = options.gap.value_or(planner.gap);
  if (options.time_limit) {
    planner.time_limit = std::chrono::milliseconds(
        static_cast<std::int64_t>(std::llround(*options.time_limit * 1e3)));
  }
  planner.progress = [&status](const std::string& text) { status.show(text); };
  return planner;
}

/// A step in which everything is kept.
Simulation base_of(const Profile& profile) { return simulate(profile, make_plan(profile, {})); }

std::string seconds(std::chrono::milliseconds time) {
  return with_decimals(static_cast<double>(time.count()) / 1e3, 2) + " s";
}

std::string how_it_was_planned(const PlannedStep& planned) {
  return "planned in " + seconds(planned.time) + ", " + std::to_string(planned.rounds) +
         (planned.rounds == 1 ? " round" : " rounds") +
         (planned.within_gap ? "" : "; the requested gap was not reached within the time limit") +
         "\n";
}

}  // namespace

int run_plan_for_budget(const BudgetPlanOptions& options) {
  const Profile profile = load_profile(options.profile);
  PlannedStep planned;
  {
    StatusLine status(std::cerr, errors_go_to_a_terminal(), "planning");
    PlannerOptions planner = planner_options(options, status);
    if (options.budget) planner.budget = resolve(*options.budget, base_of(profile).peak);
    planned = plan_for_budget(profile, planner);
  }
  if (!options.out.empty()) {
    save_plan(planned.plan, options.out);
    std::cout << options.out << " is written; `spillway explain " << options.out
              << "` says more\n\n";
  }
  std::cout << summarize(planned.plan) << "\neverything kept needs " << to_string(planned.base_peak)
            << "; " << how_it_was_planned(planned);
  return 0;
}

int run_plan_curve(const BudgetPlanOptions& options) {
  const Profile profile = load_profile(options.profile);
  const Simulation base = base_of(profile);
  Curve curve{base.step_ns, base.peak, {}};
  {
    StatusLine status(std::cerr, errors_go_to_a_terminal(), "planning");
    std::vector<Bytes> budgets;
    for (const BudgetText& each : options.budgets) budgets.push_back(resolve(each, base.peak));
    curve.points = plan_curve(profile, planner_options(options, status), std::move(budgets));
  }
  if (!options.out.empty()) write_output(options.out, to_json(curve));
  if (!options.svg.empty()) write_output(options.svg, to_svg(curve));
  std::cout << to_text(curve);
  const bool any = std::any_of(curve.points.begin(), curve.points.end(),
                               [](const CurvePoint& point) { return point.feasible; });
  return any ? 0 : kInfeasible;
}

}  // namespace spillway::app
