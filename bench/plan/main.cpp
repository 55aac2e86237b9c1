/// Question: how long does planning take, where does the time go, and how good is the plan?
///
/// How to read it: each row makes one plan, several times; its figure is the median of the seconds
/// from the profile to the plan, everything included: CPU time of the planning thread, of which
/// there is one, so that other processes do not count. Cases are the 16 Llama-shaped layers of the
/// README (24.4 GiB of activations), the same with 126 layers and the budgets that go with them,
/// and the first stage of a pipeline (four passes in flight). Profiles are made up, with sizes and
/// times of an H200, so no GPU is needed; --profile plans for a recorded one instead.
///
/// "simulated" is how many plans were simulated to judge them. The shares say where the time goes:
/// "MILP" makes and solves models, "simulate" finds allowances and simulates, "recompute" decides
/// which calls are repeated and what they start from, "rest" is everything else. "step" and "bound"
/// are the predicted step time and its lower bound, relative to a step in which everything is kept;
/// "gap" is what lies between them. Plans do not depend on how long they took: two runs that differ
/// in "step" or "gap" are two states of the code.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <iostream>

#include <CLI/CLI.hpp>

#include "cases.hpp"
#include "devices/devices.hpp"
#include "spillway/core/error.hpp"
#include "spillway/core/numbers.hpp"
#include "support/program.hpp"

namespace spillway::bench {
namespace {

constexpr const char* kQuestion =
    "How long does planning take, where does the time go, and how good is the plan?";

/// Long enough that it never ends a search.
constexpr std::chrono::milliseconds kNoLimit{3'600'000};

struct Options {
  bool small = false;
  int repeats = 3;
  std::vector<std::string> cases = plan_cases();
  std::vector<Bytes> budgets;  // Empty: those of the case.
  std::string profile;         // A file; empty: none.
};

struct Outcome {
  PlannedStep planned;
  std::vector<double> seconds;
  std::vector<double> milp;  // In percent of the time.
  std::vector<double> simulate;
  std::vector<double> recompute;
  std::vector<double> rest;
};

/// Seconds of this thread.
double processor_time() {
  std::timespec time{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

double seconds_of(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1e9; }

Outcome measure(const PlanCase& of, Bytes budget, int repeats) {
  PlannerOptions options;
  options.budget = budget;
  options.schedule = of.schedule;
  options.time_limit = kNoLimit;
  Outcome outcome;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const double processor_begin = processor_time();
    PlannedStep planned = plan_or_smallest(of.profile, options);
    const double processor = processor_time() - processor_begin;
    const double all = seconds_of(std::chrono::steady_clock::now() - begin);
    if (i > 0 && planned.plan != outcome.planned.plan) {
      throw Error("bench", "two plans of the same profile and budget differ");
    }
    outcome.planned = std::move(planned);
    const PlanningEffort& effort = outcome.planned.effort;
    outcome.seconds.push_back(processor);
    outcome.milp.push_back(100 * seconds_of(effort.solving) / all);
    outcome.simulate.push_back(100 * seconds_of(effort.simulating) / all);
    outcome.recompute.push_back(100 * seconds_of(effort.recomputation) / all);
    outcome.rest.push_back(100 - outcome.milp.back() - outcome.simulate.back() -
                           outcome.recompute.back());
  }
  return outcome;
}

Figure figure_of(const PlanCase& of, const std::string& budget, const Outcome& outcome,
                 bool judge) {
  const PlannedStep& planned = outcome.planned;
  const auto base = static_cast<double>(planned.base_ns);
  const auto exact = [](const char* name, const char* unit, int decimals, double value) {
    return Value{name, unit, decimals, app::exactly(value)};
  };
  Figure figure;
  figure.id = "plan." + of.id + "." + budget;
  figure.found = {of.text + ", " + budget + " GiB", "s", 2, app::spread_of(outcome.seconds)};
  if (of.wanted_seconds) {
    figure.wanted = Wanted{Wanted::Kind::kAtMost, *of.wanted_seconds, judge};
  }
  figure.beside = {exact("simulated", "", 0, planned.effort.evaluations),
                   exact("models solved", "", 0, planned.rounds),
                   {"MILP", "%", 0, app::spread_of(outcome.milp)},
                   {"simulate", "%", 0, app::spread_of(outcome.simulate)},
                   {"recompute", "%", 0, app::spread_of(outcome.recompute)},
                   {"rest", "%", 0, app::spread_of(outcome.rest)},
                   exact("step", "x", 4, static_cast<double>(planned.step_ns) / base),
                   exact("bound", "x", 4, static_cast<double>(planned.bound_ns) / base),
                   exact("gap", "%", 3, 100 * planned.gap),
                   exact("peak", "GiB", 3, in_gib(planned.peak)),
                   exact("fits", "", 0, planned.problem.empty() ? 1 : 0)};
  return figure;
}

app::TextTable empty_table() {
  using Align = app::TextTable::Align;
  return app::TextTable({{"case"},
                         {"GiB", Align::kRight},
                         {"seconds", Align::kRight},
                         {"min..max", Align::kRight},
                         {"simulated", Align::kRight},
                         {"MILP", Align::kRight},
                         {"simulate", Align::kRight},
                         {"recompute", Align::kRight},
                         {"rest", Align::kRight},
                         {"step", Align::kRight},
                         {"bound", Align::kRight},
                         {"gap", Align::kRight}});
}

void add_line(app::TextTable& table, const PlanCase& of, const std::string& budget,
              const Outcome& outcome) {
  const PlannedStep& planned = outcome.planned;
  const auto base = static_cast<double>(planned.base_ns);
  const Spread seconds = app::spread_of(outcome.seconds);
  const auto percent = [](const std::vector<double>& of_all) {
    return with_decimals(app::spread_of(of_all).median, 0) + " %";
  };
  table.add({of.id, budget, with_decimals(seconds.median, 2),
             with_decimals(seconds.min, 2) + ".." + with_decimals(seconds.max, 2),
             std::to_string(planned.effort.evaluations), percent(outcome.milp),
             percent(outcome.simulate), percent(outcome.recompute), percent(outcome.rest),
             with_decimals(static_cast<double>(planned.step_ns) / base, 4),
             with_decimals(static_cast<double>(planned.bound_ns) / base, 4),
             planned.problem.empty() ? with_decimals(100 * planned.gap, 3) + " %" : "no plan"});
}

void add_options(CLI::App& app, Options& options) {
  app.add_flag("--small", options.small, "Few layers: seconds in all, not judged");
  app.add_option("--repeats", options.repeats, "Plans of each row")->check(CLI::PositiveNumber);
  app.add_option("--cases", options.cases, "Some of: 16 126 1f1b")
      ->delimiter(',')
      ->check(CLI::IsMember(plan_cases()));
  app.add_option_function<std::vector<std::string>>(
         "--budgets",
         [&options](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) options.budgets.push_back(parse_bytes(text));
         },
         "Other budgets: 8GiB,3GiB")
      ->delimiter(',')
      ->type_name("SIZE,...");
  app.add_option("--profile", options.profile,
                 "A profile to plan for instead, at the same shares of its memory")
      ->type_name("FILE");
}

void measure_all(const Options& options, Report& report) {
  report.settings = {{"small", options.small}, {"repeats", options.repeats}};
  report.side_by_side = empty_table();
  std::vector<std::string> ids = options.cases;
  if (!options.profile.empty()) ids = {"file"};
  const bool judge = !options.small && options.profile.empty();
  for (const std::string& id : ids) {
    PlanCase chosen =
        id == "file" ? plan_case_of_file(options.profile) : plan_case(id, options.small);
    if (!options.budgets.empty()) chosen.budgets = options.budgets;
    for (const Bytes bytes : chosen.budgets) {
      const std::string budget = with_decimals(in_gib(bytes), 2);
      std::cerr << "planning: " << chosen.text << ", " << budget << " GiB ...\n";
      const Outcome outcome = measure(chosen, bytes, options.repeats);
      report.figures.push_back(figure_of(chosen, budget, outcome, judge));
      add_line(*report.side_by_side, chosen, budget, outcome);
      report.save();
    }
  }
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  namespace bench = spillway::bench;
  bench::Options options;
  bench::Program program;
  program.bench = "plan";
  program.question = bench::kQuestion;
  program.add_options = [&](CLI::App& app) { bench::add_options(app, options); };
  program.open_device = [] {
    return spillway::app::open_device(spillway::app::parse_device("host"));
  };
  program.measure = [&](spillway::Device&, bench::Report& report) {
    bench::measure_all(options, report);
  };
  return bench::run_program(program, argc, argv);
}
