/// Question: how fast is a step within a memory budget, and how good is the prediction?
///
/// How to read it: every row trains the same model on the same tokens, in turns without and within
/// the budget; its figure is the median ratio of the two, beside the planner's prediction and its
/// lower bound for any plan. "peak" is the allocator's own maximum in a step, less what was
/// allocated before it (weights, gradients); it must not exceed the budget. Errors are those of the
/// prediction, relative to the measurement. "gradients that differ" counts those that differ in a
/// bit from those without a session.
///
/// A GPU at its power limit lowers its clock the more it computes, which the planner does not
/// model. --clocks measures the clock of both kinds of steps, in turns of several steps of a kind.
/// "ratio of cycles" is the ratio of such turns times that of their clocks.
///
/// One row, "end to end", is what users run: a session that is given the budget and nothing else.
/// The time of its planner is not measured. The other rows carry out plans for the profile of that
/// session.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>

#include <CLI/CLI.hpp>

#include "budget_bench.hpp"
#include "cases.hpp"
#include "spillway/core/numbers.hpp"
#include "spillway/plan/explain.hpp"
#include "support/training_program.hpp"
#include "train/model/device_memory.hpp"

namespace spillway::bench {
namespace {

constexpr const char* kQuestion =
    "How fast is a step within a memory budget, and how good is the prediction?";

constexpr double kMaxTimeError = 3;  // Percent.
constexpr double kMaxPeakError = 2;

struct Options {
  bool small = false;
  bool explain = false;
  BudgetSettings bench;
  std::string model = "layers";
  std::vector<std::string> budgets;  // Empty: those of the model.
  std::string profile;               // File to save the profile to; empty: none.
};

double seconds(std::chrono::milliseconds time) { return static_cast<double>(time.count()) / 1e3; }

/// In percent of the measurement.
double error_of(double predicted, double measured) { return 100 * (predicted / measured - 1); }

void add_clocks(std::vector<Value>& values, const ClockOutcome& clocks) {
  std::vector<double> cycles;
  for (std::size_t i = 0; i < clocks.ratios.size(); ++i) {
    cycles.push_back(clocks.ratios[i] * clocks.within[i] / clocks.without[i]);
  }
  const auto add = [&](const char* name, const char* unit, int decimals,
                       const std::vector<double>& of) {
    values.push_back({name, unit, decimals, app::spread_of(of)});
  };
  add("ratio in turns of several", "x", 3, clocks.ratios);
  add("ratio of cycles", "x", 3, cycles);
  add("clock", "MHz", 0, clocks.within);
  add("clock without", "MHz", 0, clocks.without);
  add("power", "W", 0, clocks.power_within);
  add("power without", "W", 0, clocks.power_without);
  add("clock limited by power", "%", 0, clocks.capped_within);
  add("without", "%", 0, clocks.capped_without);
}

std::vector<Value> values_beside(const BudgetOutcome& outcome) {
  const PlannedStep& planned = outcome.planned;
  const auto base = static_cast<double>(planned.base_ns);
  const auto exact = [](const char* name, const char* unit, int decimals, double value) {
    return Value{name, unit, decimals, app::exactly(value)};
  };
  std::vector<Value> values = {
      exact("predicted ratio", "x", 3, static_cast<double>(planned.step_ns) / base),
      exact("bound ratio", "x", 3, static_cast<double>(planned.bound_ns) / base),
      {"step", "ms", 1, app::spread_of(outcome.milliseconds)},
      exact("predicted step", "ms", 1, static_cast<double>(planned.step_ns) / 1e6),
      {"without", "ms", 1, app::spread_of(outcome.base)},
      exact("predicted without", "ms", 1, base / 1e6),
      exact("gradients that differ", "", 0, outcome.different),
      exact("out", "GiB", 2, in_gib(outcome.report.bytes_out)),
      exact("recomputed", "GiB", 2, in_gib(outcome.report.bytes_recomputed)),
      exact("by operators", "", 0, static_cast<double>(outcome.report.repeated_calls)),
      exact("fused kernels", "", 0, static_cast<double>(outcome.report.fused_kernels)),
      exact("late", "", 0, static_cast<double>(outcome.report.late_reloads)),
      exact("waited to release", "ms", 1, in_milliseconds(outcome.report.waits.release)),
      exact("to reload", "ms", 1, in_milliseconds(outcome.report.waits.reload)),
      exact("demoted", "", 0, static_cast<double>(outcome.report.demoted.size())),
  };
  if (outcome.clocks) add_clocks(values, *outcome.clocks);
  if (planned.rounds > 0) values.push_back(exact("planning", "s", 2, seconds(planned.time)));
  return values;
}

void add_figures(Report& report, const std::string& id, const std::string& text,
                 const BudgetRow& row, const BudgetOutcome& outcome, bool judge) {
  const auto at_most = [judge](double limit) {
    return Wanted{Wanted::Kind::kAtMost, limit, judge};
  };
  const auto add = [&](const std::string& what, Value found, std::optional<Wanted> wanted,
                       std::vector<Value> beside) {
    report.figures.push_back({"budget." + id + what, std::move(found), wanted, std::move(beside)});
  };
  add("", {text, "x", 3, app::spread_of(outcome.ratios)},
      row.wanted ? std::optional(at_most(*row.wanted)) : std::nullopt, values_beside(outcome));
  const double measured = app::spread_of(outcome.milliseconds).median;
  const double time_error = error_of(static_cast<double>(outcome.planned.step_ns) / 1e6, measured);
  add("_time_error", {"error of the predicted time", "%", 1, app::exactly(std::abs(time_error))},
      at_most(kMaxTimeError), {{"predicted less measured", "%", 1, app::exactly(time_error)}});
  add("_peak", {"its peak", "GiB", 3, app::exactly(in_gib(outcome.peak))},
      at_most(in_gib(outcome.budget)),
      {{"predicted", "GiB", 3, app::exactly(in_gib(outcome.planned.peak))}});
  const double peak_error = error_of(in_gib(outcome.planned.peak), in_gib(outcome.peak));
  add("_peak_error", {"error of the predicted peak", "%", 1, app::exactly(std::abs(peak_error))},
      at_most(kMaxPeakError), {{"predicted less measured", "%", 1, app::exactly(peak_error)}});
}

app::TextTable empty_table() {
  using Align = app::TextTable::Align;
  return app::TextTable({{"budget"},
                         {"step / base", Align::kRight},
                         {"min..max", Align::kRight},
                         {"predicted", Align::kRight},
                         {"bound", Align::kRight},
                         {"error", Align::kRight},
                         {"budget GiB", Align::kRight},
                         {"peak", Align::kRight},
                         {"predicted", Align::kRight},
                         {"error", Align::kRight},
                         {"planned in", Align::kRight},
                         {"bits equal"}});
}

void add_line(app::TextTable& table, const std::string& text, const BudgetOutcome& outcome) {
  const PlannedStep& planned = outcome.planned;
  const auto base = static_cast<double>(planned.base_ns);
  const auto step = static_cast<double>(planned.step_ns);
  const Spread ratio = app::spread_of(outcome.ratios);
  const double measured = app::spread_of(outcome.milliseconds).median;
  table.add({text, with_decimals(ratio.median, 3),
             with_decimals(ratio.min, 3) + ".." + with_decimals(ratio.max, 3),
             with_decimals(step / base, 3),
             with_decimals(static_cast<double>(planned.bound_ns) / base, 3),
             with_decimals(error_of(step / 1e6, measured), 1) + " %",
             with_decimals(in_gib(outcome.budget), 2), with_decimals(in_gib(outcome.peak), 2),
             with_decimals(in_gib(planned.peak), 2),
             with_decimals(error_of(in_gib(planned.peak), in_gib(outcome.peak)), 1) + " %",
             planned.rounds == 0 ? "-" : with_decimals(seconds(planned.time), 2) + " s",
             outcome.different == 0 ? "yes" : "no"});
}

void add_options(CLI::App& app, Options& options) {
  app.add_flag("--small", options.small, "A model for the CPU: seconds, not judged");
  app.add_flag("--explain", options.explain, "Print the plan of every row");
  app.add_flag("!--no-fuse", options.bench.fuse,
               "Recompute consecutive elementwise operators with one kernel each");
  app.add_option("--repeats", options.bench.repeats, "Timed steps of each row")
      ->check(CLI::PositiveNumber);
  app.add_flag("--clocks", options.bench.clocks,
               "Read the GPU's clock and power in steps without and within the budget");
  app.add_option("--trace", options.bench.traces,
                 "Write traces of a step without and within the budget into this folder, which "
                 "bench/layers/compare_traces.py compares")
      ->type_name("FOLDER");
  app.add_option("--model", options.model, "layers, long (65,536 tokens) or moe")
      ->check(CLI::IsMember(budget_models()))
      ->capture_default_str();
  app.add_option("--budgets", options.budgets, "Other budgets: 8GiB,33%")->delimiter(',');
  app.add_option("--profile", options.profile, "Save the profile that plans are made for")
      ->type_name("FILE");
}

void measure_all(const Options& options, Report& report) {
  const at::Device device = app::best_device();
  const bool judge = device.is_cuda() && !options.small;
  BudgetCase chosen = budget_case(options.model, device, !judge);
  if (!options.budgets.empty()) choose_budgets(chosen, options.budgets);
  report.settings = {{"model", options.model},
                     {"layers", chosen.shape.layers},
                     {"hidden", chosen.shape.hidden},
                     {"tokens", chosen.shape.tokens},
                     {"experts", chosen.shape.moe.experts},
                     {"replays fused", options.bench.fuse}};
  report.side_by_side = empty_table();
  if (!options.bench.traces.empty()) std::filesystem::create_directories(options.bench.traces);
  BudgetBench bench(chosen.shape, options.bench);
  const double base_peak = in_gib(bench.base_peak());
  const auto run = [&](const BudgetRow& row, bool end_to_end) {
    std::cerr << "measuring: " << row.text << (end_to_end ? ", end to end" : "") << " ...\n";
    const BudgetOutcome outcome = end_to_end ? bench.run_end_to_end(row) : bench.run_by_plan(row);
    if (options.explain) std::cerr << explain(outcome.planned.plan) << '\n';
    const std::string text = row.text + (end_to_end ? ", end to end" : "");
    add_figures(report, end_to_end ? "end_to_end" : row.text, text, row, outcome, judge);
    add_line(*report.side_by_side, text, outcome);
  };
  run(chosen.rows[chosen.end_to_end], true);
  if (!options.profile.empty()) save_profile(*bench.profile(), options.profile);
  for (const BudgetRow& row : chosen.rows) run(row, false);
  report.figures.push_back({"budget.base_peak",
                            {"peak without Spillway", "GiB", 3, app::exactly(base_peak)},
                            std::nullopt,
                            {}});
  add_training_notes(report, judge);
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  namespace bench = spillway::bench;
  return bench::run_training_program("budget", bench::kQuestion, &bench::add_options,
                                     &bench::measure_all, argc, argv);
}
