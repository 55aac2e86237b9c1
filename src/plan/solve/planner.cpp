#include "spillway/plan/planner.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "plan/simulate/slower_link.hpp"
#include "plan/solve/planner_closed_bound.hpp"
#include "plan/solve/planner_result.hpp"
#include "plan/solve/planner_search.hpp"
#include "plan/solve/planner_shard.hpp"
#include "spillway/core/error.hpp"

namespace spillway {
namespace {

constexpr int kSlowdownRounds = 6;

std::int64_t count(Bytes bytes) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(bytes.count(), std::uint64_t{1} << 60U));
}

bool offloads(const Plan& plan) {
  return std::any_of(plan.chunks.begin(), plan.chunks.end(), [](const ChunkPlan& chunk) {
    return std::any_of(chunk.decisions.begin(), chunk.decisions.end(), [](const Decision& each) {
      return each.action.kind == ActionKind::kOffload;
    });
  });
}

void require_usable(const Profile& profile, const PlannerOptions& options) {
  if ((profile.link.out <= 0) != (profile.link.back <= 0)) {
    throw InvalidArgument("plan",
                          "the profile has the speed of the link in one direction only; measure it "
                          "again with `spillway profile`");
  }
  if (profile.link.out <= 0 && offloads(make_plan(profile, options.rules))) {
    throw InvalidArgument(
        "plan",
        "rules offload, but the profile has no link speeds: too little host memory "
        "was given to measure them; raise `host` and profile again");
  }
  if (!(options.link_margin >= 0 && options.link_margin < 1)) {
    throw InvalidArgument("plan", "link_margin must be at least 0 and less than 1");
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
        wary_(with_slower_link(profile, 1 - options.link_margin)),
        slow_(with_slower_link(profile, kSlowLink)),
        rules_(translate(options.rules, shape_of(profile))),
        search_(wary_, rules_, options),
        simulator_(profile, search_.evaluator().schedule(), options.shard),
        base_(simulator_.run(make_plan(profile, {}))) {}

  [[nodiscard]] Search& search() { return search_; }
  [[nodiscard]] const Search& search() const { return search_; }
  [[nodiscard]] const Simulation& base() const { return base_; }
  /// Whether some buffers are equal on all ranks and may be sharded.
  [[nodiscard]] bool has_equal() const { return !options_.equal.empty(); }
  /// No plan needs less memory within this step time. The bound of the MILP model holds for whole
  /// buffers.
  [[nodiscard]] std::int64_t bound_bytes(std::int64_t most_ns) {
    const std::int64_t whole = search_.bound_bytes(most_ns, profile_.link).value_or(0);
    return has_equal() ? whole / options_.shard.ranks : whole;
  }

  /// The one with the least memory that was found, in parts too where it may shard.
  [[nodiscard]] const Candidate& smallest() {
    if (!has_equal()) return search_.smallest();
    if (!smallest_) {
      Candidate found = search_.smallest();
      shard_what_helps(search_, options_, 0, found);
      smallest_ = std::move(found);
    }
    return *smallest_;
  }

  /// Empty if nothing was found that fits.
  [[nodiscard]] std::optional<PlannedStep> plan(std::int64_t budget, std::vector<Choice>& known) {
    Candidate simplest = search_.simplest(budget);
    if (simplest.evaluated.fits() && options_.fits) options_.fits();
    const std::optional<std::int64_t> bound = search_.bound_ns(budget, wary_.link);
    if (!bound && !has_equal()) return std::nullopt;
    Candidate found = bound ? search_.best(budget, *bound, std::move(simplest), known)
                            : within(search_.smallest(), budget);
    if (!found.evaluated.fits() && bound) found = within(search_.smallest(), budget);
    if (has_equal()) {
      shard_what_helps(search_, options_, budget, found);
      if (!found.evaluated.fits()) found = within(smallest(), budget);
    }
    if (!found.evaluated.fits()) return std::nullopt;
    keep_resident_buffers(search_, budget, found);
    known.push_back(found.choice);
    return result(found, budget, bound_of(found, budget, bound));
  }

  /// The plan of smallest(), as fast as its own peak allows.
  [[nodiscard]] PlannedStep smallest_plan() {
    const Candidate& least = smallest();
    const std::int64_t peak = count(least.evaluated.simulation.peak);
    Candidate found = within(least, peak);
    keep_resident_buffers(search_, peak, found);
    return result(found, peak, 0);
  }

 private:
  /// The bound of the MILP model holds for whole buffers only.
  [[nodiscard]] std::int64_t bound_of(const Candidate& found, std::int64_t budget,
                                      std::optional<std::int64_t> wary_bound) {
    const bool shards =
        std::any_of(found.choice.begin(), found.choice.end(), [](const ChunkChoice& chunk) {
          return std::find(chunk.shard.begin(), chunk.shard.end(), true) != chunk.shard.end();
        });
    if (shards) return 0;
    // Without a slower link there is nothing to solve again.
    const bool same = options_.link_margin == 0 || wary_bound.value_or(0) <= base_.step_ns;
    return (same ? wary_bound : search_.bound_ns(budget, profile_.link)).value_or(0);
  }

  /// A choice that needs little, with as much as the budget has.
  [[nodiscard]] Candidate within(const Candidate& smallest, std::int64_t budget) {
    Evaluated evaluated = search_.evaluator().evaluate(smallest.choice, budget);
    if (!evaluated.fits() && count(smallest.evaluated.simulation.peak) <= budget) {
      // With passes in flight a larger budget may give a larger excess; the budget with which the
      // choice was found does not.
      evaluated = smallest.evaluated;
      evaluated.excess = 0;
    }
    return {smallest.choice, std::move(evaluated)};
  }

  /// As set_windows() does for rules, and without cost at the measured speed of the link.
  void limit_pending_release(ByteTargets targets, Plan& plan) {
    if (has_equal() || plan.limits.offload_window || plan.limits.prefetch_window) return;
    const std::int64_t free_ns = simulator_.run(plan).step_ns;
    Plan limited = plan;
    Simulator(slow_, simulator_.schedule(), options_.shard).limit_pending_release(targets, limited);
    if (simulator_.run(limited).step_ns <= free_ns) plan = std::move(limited);
  }

  [[nodiscard]] PlannedStep result(const Candidate& found, std::int64_t budget,
                                   std::int64_t bound) {
    PlannedStep step;
    step.plan = found.evaluated.plan;
    limit_pending_release(found.evaluated.targets, step.plan);
    const Simulation simulation = simulator_.run(step.plan);
    step.base_ns = base_.step_ns;
    step.base_peak = base_.peak;
    step.step_ns = simulation.step_ns;
    step.peak = simulation.peak;
    step.closed_bound_ns =
        bound == 0 ? 0 : closed_bound_ns(search_.evaluator(), base_, profile_.link, budget);
    step.bound_ns = std::max({bound, step.closed_bound_ns, base_.step_ns});
    step.gap = step.bound_ns > 0
                   ? static_cast<double>(step.step_ns) / static_cast<double>(step.bound_ns) - 1
                   : 0;
    step.within_gap = step.gap <= options_.gap;
    step.rounds = search_.rounds();
    step.time = search_.elapsed();
    step.effort = search_.evaluator().effort();
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
  Profile wary_;
  Profile slow_;
  Rules rules_;
  Search search_;
  std::optional<Candidate> smallest_;  // With sharding.
  Simulator simulator_;
  Simulation base_;
};

/// Counts what is reserved of the budget in the plan's peak.
void reserve(PlannedStep& step, Bytes budget, Bytes reserved, Bytes wanted) {
  step.reserved = reserved;
  step.peak += reserved;
  step.plan.budget = budget;
  step.plan.predicted_peak = step.peak;
  if (wanted == Bytes(0)) return;
  std::string note =
      "reserved for untracked allocations (later passes, rounding by the allocator): " +
      to_string(reserved) + " of the budget of " + to_string(budget);
  if (reserved < wanted) note += "; " + to_string(wanted) + " wanted, but no plan fits the rest";
  step.plan.notes.push_back(std::move(note));
}

/// The smallest budget whose plan is fast enough: between the bound of the MILP model and
/// everything kept.
PlannedStep plan_for_slowdown(Planning& planning, double most) {
  const auto limit = static_cast<std::int64_t>(most * static_cast<double>(planning.base().step_ns));
  const auto fast_enough = [limit](const std::optional<PlannedStep>& step) {
    return step && step->step_ns <= limit;
  };
  std::int64_t high = count(planning.base().peak);
  std::vector<Choice> known;
  std::optional<PlannedStep> best = planning.plan(high, known);
  if (!fast_enough(best)) {
    throw PlanInfeasible("plan",
                         "rules make every step slower than max_slowdown allows; pin less, "
                         "or allow more");
  }
  std::int64_t low = planning.bound_bytes(limit);
  // The bound for whole buffers is near: look there first, then halve what is left.
  const int near = planning.has_equal() ? 0 : 2;
  for (int round = 0; round < kSlowdownRounds && high - low > high / 200; ++round) {
    const std::int64_t budget = round < near ? low + (high - low) / 16 : low + (high - low) / 2;
    std::optional<PlannedStep> step = planning.plan(budget, known);
    if (fast_enough(step)) {
      high = budget;
      best = std::move(step);
    } else {
      low = budget;
    }
  }
  return std::move(*best);
}

std::vector<Bytes> default_budgets(Bytes smallest, Bytes most) {
  constexpr std::uint64_t kBudgets = 12;
  std::vector<Bytes> budgets;
  const std::uint64_t step = (most.count() - std::min(smallest, most).count()) / (kBudgets - 1);
  for (std::uint64_t i = 0; i + 1 < kBudgets; ++i) {
    budgets.emplace_back(smallest.count() + i * step);
  }
  budgets.push_back(std::max(smallest, most));
  return budgets;
}

CurvePoint point_of(const PlannedStep& step, const Planning& planning) {
  CurvePoint point;
  point.budget = *step.plan.budget;
  point.feasible = true;
  point.step_ns = step.step_ns;
  point.bound_ns = step.bound_ns;
  point.peak = step.peak;
  const std::vector<ChunkSpace>& spaces = planning.search().evaluator().spaces();
  for (std::size_t i = 0; i < spaces.size(); ++i) {
    for (const Decision& decision : step.plan.chunks[i].decisions) {
      if (decision.fixed != FixedReason::kNone) continue;
      switch (decision.action.kind) {
        case ActionKind::kKeep:
          point.kept += decision.bytes;
          break;
        case ActionKind::kOffload:
          point.offloaded += decision.bytes;
          break;
        case ActionKind::kRecompute:
          point.recomputed += decision.bytes;
          break;
      }
    }
  }
  return point;
}

}  // namespace

PlannedStep plan_or_smallest(const Profile& profile, const PlannerOptions& options) {
  require_usable(profile, options);
  Planning planning(profile, options);
  if (options.max_slowdown) return plan_for_slowdown(planning, *options.max_slowdown);
  const Bytes budget = options.budget;
  const Bytes reserved = std::min(options.reserve, budget);
  std::vector<Choice> known;
  if (std::optional<PlannedStep> step = planning.plan(count(budget - reserved), known)) {
    reserve(*step, budget, reserved, options.reserve);
    return std::move(*step);
  }
  PlannedStep step = planning.smallest_plan();
  if (step.peak <= budget) {
    reserve(step, budget, std::min(reserved, budget - step.peak), options.reserve);
    return step;
  }
  step.problem = infeasible_text(planning.search(), planning.smallest(), budget);
  reserve(step, budget, Bytes(0), options.reserve);
  step.plan.notes.emplace_back("no plan fits the budget: this one has the smallest peak found");
  return step;
}

PlannedStep plan_for_budget(const Profile& profile, const PlannerOptions& options) {
  PlannedStep step = plan_or_smallest(profile, options);
  if (!step.problem.empty()) throw PlanInfeasible("plan", step.problem);
  return step;
}

SmallestBudget smallest_budget(const Profile& profile, const PlannerOptions& options) {
  require_usable(profile, options);
  Planning planning(profile, options);
  const Simulation& smallest = planning.smallest().evaluated.simulation;
  return {smallest.peak, smallest.peak_location.scope, smallest.peak_location.what};
}

std::vector<CurvePoint> plan_curve(const Profile& profile, const PlannerOptions& options,
                                   std::vector<Bytes> budgets) {
  require_usable(profile, options);
  Planning planning(profile, options);
  if (budgets.empty()) {
    const Bytes smallest = planning.smallest().evaluated.simulation.peak;
    budgets = default_budgets(smallest, planning.base().peak);
  }
  std::vector<std::size_t> order(budgets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return budgets[a] < budgets[b]; });
  std::vector<CurvePoint> curve(budgets.size());
  // What fits a small budget fits a larger one.
  std::vector<Choice> known;
  for (const std::size_t i : order) {
    curve[i].budget = budgets[i];
    planning.search().start_clock();
    const std::optional<PlannedStep> step = planning.plan(count(budgets[i]), known);
    if (step) curve[i] = point_of(*step, planning);
  }
  return curve;
}

}  // namespace spillway
