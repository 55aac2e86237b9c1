#include "budget_bench.hpp"

#include <algorithm>

#include "devices/devices.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/simulate.hpp"
#include "support/settle.hpp"
#include "support/step_trace.hpp"
#include "util/text/spread.hpp"

namespace spillway::bench {
namespace {

using namespace spillway::literals;

constexpr int kWarmUp = 3;
/// At least what any plan on the way to the final one offloads.
constexpr Bytes kMaxOffloaded = 24_GiB;
constexpr Bytes kWindow = 1_GiB;
/// The clock of a GPU needs some steps to settle.
constexpr int kClockTurns = 4;
constexpr int kClockWarmUp = 3;
constexpr int kClockSteps = 6;

Budget budget_of(const app::BudgetText& text) {
  if (const auto* bytes = std::get_if<Bytes>(&text)) return *bytes;
  return Budget::share(std::get<app::Share>(text).value);
}

std::unique_ptr<ClockMeter> meter_of(at::Device device) {
  if (device.is_cuda()) {
    for (const app::Gpu& gpu : app::gpu_system().gpus) {
      if (gpu.index == device.index()) return std::make_unique<ClockMeter>(gpu.pci_bus);
    }
  }
  throw InvalidArgument("bench", "--clocks needs a GPU; the model is on " + device.str());
}

}  // namespace

BudgetBench::BudgetBench(const LlamaShape& shape, BudgetSettings settings)
    : settings_(std::move(settings)), measured_(shape) {
  if (settings_.clocks) meter_ = meter_of(measured_.tokens().device());
  (void)measured_.step(nullptr);  // Allocates the gradients.
}

SessionOptions BudgetBench::session_options(Bytes offloaded) const {
  SessionOptions options;
  options.device = measured_.tokens().device();
  if (measured_.tokens().is_cuda()) options.prepare = offloaded;
  options.time_waits_every = 4;  // Includes a warm step.
  options.fuse_replays = settings_.fuse;
  return options;
}

void BudgetBench::measure(const std::string& name, Session& session, BudgetOutcome& outcome) {
  for (int i = 0; i < settings_.repeats + kWarmUp; ++i) {
    const double base = measured_.step(nullptr).milliseconds;
    const app::MeasuredStep step = measured_.step(&session);
    if (i < kWarmUp) continue;
    outcome.base.push_back(base);
    outcome.milliseconds.push_back(step.milliseconds);
    outcome.ratios.push_back(step.milliseconds / base);
    outcome.peak = std::max(outcome.peak, step.peak);
  }
  outcome.report = session.report();
  if (meter_ != nullptr) outcome.clocks = measure_clocks(session);
  if (!settings_.traces.empty()) {
    trace_without_and_with(
        measured_.tokens().device(), [&](Session* used) { (void)measured_.step(used); }, session,
        settings_.traces / name);
  }
  outcome.different = measured_.count_different(session);
}

ClockOutcome BudgetBench::measure_clocks(Session& session) {
  ClockOutcome outcome;
  const auto turn = [&](Session* used, std::vector<double>& clock, std::vector<double>& power,
                        std::vector<double>& capped) {
    for (int i = 0; i < kClockWarmUp; ++i) (void)measured_.step(used);
    std::vector<double> times;
    meter_->start();
    for (int i = 0; i < kClockSteps; ++i) times.push_back(measured_.step(used).milliseconds);
    const ClockReading reading = meter_->stop();
    clock.push_back(reading.clock);
    power.push_back(reading.power);
    capped.push_back(100 * reading.capped);
    return app::spread_of(times).median;
  };
  for (int i = 0; i < kClockTurns; ++i) {
    const double without =
        turn(nullptr, outcome.without, outcome.power_without, outcome.capped_without);
    const double within =
        turn(&session, outcome.within, outcome.power_within, outcome.capped_within);
    outcome.ratios.push_back(within / without);
  }
  return outcome;
}

BudgetOutcome BudgetBench::run_end_to_end(const BudgetRow& row) {
  SessionOptions options = session_options(kMaxOffloaded);
  options.budget = budget_of(row.budget);
  options.plan_in_background = false;  // Settles after a known number of steps.
  Session session(std::move(options));
  session.register_model(measured_.model());
  BudgetOutcome outcome;
  const auto both = [&] {
    (void)measured_.step(nullptr);
    (void)measured_.step(&session);
  };
  settle(session, both, kStepsToSettle, 3 * kStepsToSettle);
  measure(row.text + "-end-to-end", session, outcome);
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
  // As much as the plan needs, so that no host memory is pinned during timed steps.
  SessionOptions options =
      session_options(simulate(*profile_, outcome.planned.plan).bytes_out + kWindow);
  options.plan = outcome.planned.plan;
  Session session(std::move(options));
  session.register_model(measured_.model());
  measure(row.text, session, outcome);
  return outcome;
}

}  // namespace spillway::bench
