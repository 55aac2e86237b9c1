#include "spillway/plan/planner.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "plan/planner_closed_bound.hpp"
#include "plan/planner_result.hpp"
#include "plan/planner_search.hpp"
#include "spillway/core/error.hpp"

namespace spillway {
namespace {

std::int64_t count(Bytes bytes) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(bytes.count(), std::uint64_t{1} << 60U));
}

void require_usable(const Profile& profile, const PlannerOptions& options) {
  if (profile.link.out <= 0 || profile.link.back <= 0) {
    throw InvalidArgument("plan",
                          "the profile has no link speeds; record it anew with `spillway profile`");
  }
  if (options.max_slowdown && !(*options.max_slowdown > 1)) {
    throw InvalidArgument("plan",
                          "max_slowdown must be more than 1, which is the time of a step "
                          "in which everything is kept");
  }
}

/// One question to the planner, from the profile to the answer.
class Planning {
 public:
  Planning(const Profile& profile, const PlannerOptions& options)
      : profile_(profile),
        options_(options),
        rules_(translate(options.rules, shape_of(profile))),
        search_(profile, rules_, options) {
    const Rules none;
    Evaluator plain(profile, none, options.schedule);
    Choice keep;
    for (const ChunkSpace& space : plain.spaces()) {
      keep.push_back(choose_everywhere(space, ActionKind::kKeep));
    }
    base_ = plain.simulator().run(plain.plan(keep));
  }

  [[nodiscard]] Search& search() { return search_; }
  [[nodiscard]] const Simulation& base() const { return base_; }

  /// Empty if nothing was found that fits.
  [[nodiscard]] std::optional<PlannedStep> plan(std::int64_t budget, std::vector<Choice>& known) {
    const std::optional<std::int64_t> bound = search_.bound_ns(budget);
    if (!bound) return std::nullopt;
    Found found = search_.best(budget, *bound, known);
    if (!found.evaluated.fits()) {
      Evaluated evaluated = search_.evaluator().evaluate(search_.smallest().choice, budget);
      if (!evaluated.fits()) return std::nullopt;
      found = {search_.smallest().choice, std::move(evaluated)};
    }
    keep_what_stays(search_, budget, found);
    known.push_back(found.choice);
    return result(found, budget, *bound);
  }

 private:
  [[nodiscard]] PlannedStep result(const Found& found, std::int64_t budget, std::int64_t bound) {
    const Simulation& simulation = found.evaluated.simulation;
    PlannedStep step;
    step.plan = found.evaluated.plan;
    step.base_ns = base_.step_ns;
    step.base_peak = base_.peak;
    step.step_ns = simulation.step_ns;
    step.peak = simulation.peak;
    step.closed_bound_ns = closed_bound_ns(search_.evaluator(), base_, profile_.link, budget);
    step.bound_ns = std::max({bound, step.closed_bound_ns, base_.step_ns});
    step.gap = step.bound_ns > 0
                   ? static_cast<double>(step.step_ns) / static_cast<double>(step.bound_ns) - 1
                   : 0;
    step.proven = step.gap <= options_.gap;
    step.rounds = search_.rounds();
    step.time = search_.elapsed();
    Plan& plan = step.plan;
    plan.budget = Bytes(static_cast<std::uint64_t>(budget));
    plan.predicted_step_ns = step.step_ns;
    plan.predicted_peak = step.peak;
    plan.base_step_ns = step.base_ns;
    plan.bound_step_ns = step.bound_ns;
    add_reasons(search_, found, plan);
    plan.notes.push_back(gap_text(step.gap));
    return step;
  }

  const Profile& profile_;
  const PlannerOptions& options_;
  Rules rules_;
  Search search_;
  Simulation base_;
};

}  // namespace

PlannedStep plan_for_budget(const Profile& profile, const PlannerOptions& options) {
  require_usable(profile, options);
  Planning planning(profile, options);
  std::vector<Choice> known;
  std::optional<PlannedStep> step = planning.plan(count(options.budget), known);
  if (step) return std::move(*step);
  throw PlanInfeasible(
      "plan", infeasible_text(planning.search(), planning.search().smallest(), options.budget));
}

SmallestBudget smallest_budget(const Profile& profile, const PlannerOptions& options) {
  require_usable(profile, options);
  Planning planning(profile, options);
  const Simulation& smallest = planning.search().smallest().evaluated.simulation;
  return {smallest.peak, smallest.peak_place.scope, smallest.peak_place.what};
}

}  // namespace spillway
