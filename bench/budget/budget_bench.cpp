#include "budget_bench.hpp"

#include <algorithm>

#include "spillway/core/error.hpp"
#include "spillway/plan/simulate.hpp"

namespace spillway::bench {
namespace {

using namespace spillway::literals;

constexpr int kWarmUp = 3;
/// A session with a budget records, then proves a plan and times a step or four, at most three
/// times, and proves the last plan.
constexpr int kSettling = 14;
/// What all plans of the way to the last one offload, or less.
constexpr Bytes kMostOffloaded = 24_GiB;
constexpr Bytes kWindow = 1_GiB;

Budget budget_of(const app::BudgetText& text) {
  if (const auto* bytes = std::get_if<Bytes>(&text)) return *bytes;
  return Budget::share(std::get<app::Share>(text).value);
}

}  // namespace

BudgetBench::BudgetBench(const LlamaShape& shape, int repeats, bool fuse)
    : repeats_(repeats), fuse_(fuse), measured_(shape) {
  (void)measured_.step(nullptr);  // Gradients are there from now on.
}

SessionOptions BudgetBench::session_options(Bytes offloaded) const {
  SessionOptions options;
  options.device = measured_.tokens().device();
  if (measured_.tokens().is_cuda()) options.prepare = offloaded;
  options.time_waits_every = 4;  // So that a warm step is among them.
  options.fuse_replays = fuse_;
  return options;
}

void BudgetBench::measure(Session& session, BudgetOutcome& outcome) {
  for (int i = 0; i < repeats_ + kWarmUp; ++i) {
    const double base = measured_.step(nullptr).milliseconds;
    const app::MeasuredStep step = measured_.step(&session);
    if (i < kWarmUp) continue;
    outcome.base.push_back(base);
    outcome.milliseconds.push_back(step.milliseconds);
    outcome.ratios.push_back(step.milliseconds / base);
    outcome.peak = std::max(outcome.peak, step.peak);
  }
  outcome.report = session.report();
  outcome.different = measured_.count_different(session);
}

BudgetOutcome BudgetBench::run_whole_way(const BudgetRow& row) {
  SessionOptions options = session_options(kMostOffloaded);
  options.budget = budget_of(row.budget);
  options.plan_in_background = false;  // So that it has settled after a known number of steps.
  Session session(std::move(options));
  session.register_model(measured_.model());
  BudgetOutcome outcome;
  for (int i = 0; i < kSettling; ++i) {
    (void)measured_.step(nullptr);
    (void)measured_.step(&session);
  }
  measure(session, outcome);
  profile_ = session.profile();
  const std::shared_ptr<const Plan> plan = session.plan();
  if (plan == nullptr || !plan->budget) {
    throw Error("bench", "the session has no plan for its budget:\n" + outcome.report.to_text());
  }
  outcome.budget = *plan->budget;
  outcome.planned.plan = *plan;
  outcome.planned.base_ns = plan->base_step_ns.value_or(0);
  outcome.planned.step_ns = plan->predicted_step_ns.value_or(0);
  outcome.planned.bound_ns = plan->bound_step_ns.value_or(0);
  outcome.planned.peak = plan->predicted_peak.value_or(Bytes());
  return outcome;
}

BudgetOutcome BudgetBench::run_by_plan(const BudgetRow& row) {
  const Bytes whole = simulate(*profile_, make_plan(*profile_, {})).peak;
  BudgetOutcome outcome;
  PlannerOptions planner;
  outcome.budget = planner.budget = app::resolve(row.budget, whole);
  outcome.planned = plan_for_budget(*profile_, planner);
  // No more than it takes, so that none is made ready beside timed steps.
  SessionOptions options =
      session_options(simulate(*profile_, outcome.planned.plan).bytes_out + kWindow);
  options.plan = outcome.planned.plan;
  Session session(std::move(options));
  session.register_model(measured_.model());
  measure(session, outcome);
  return outcome;
}

}  // namespace spillway::bench
