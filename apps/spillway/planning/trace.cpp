#include "planning/trace.hpp"

#include <iomanip>
#include <iostream>
#include <memory>
#include <string>

#include "spillway/core/numbers.hpp"
#include "spillway/plan/simulate.hpp"
#include "spillway/trace/predicted.hpp"
#include "util/files.hpp"

namespace spillway::app {
namespace {

struct TraceOptions {
  std::string profile;
  std::string plan;
  std::string out;
  int micro_batches = 1;
};

constexpr const char* kTraceExamples =
    "\nExamples:\n"
    "  spillway trace --profile p.json --plan plan.json -o trace.json\n"
    "  spillway trace --profile p.json --plan plan.json -o trace.json --micro-batches 4\n"
    "\nOpen the file at https://ui.perfetto.dev or in chrome://tracing: streams are threads, "
    "memory\n"
    "is a counter. docs/planner.md says what is in it.\n";

std::string milliseconds(std::int64_t ns) {
  return with_decimals(static_cast<double>(ns) / 1e6, 2) + " ms";
}

void print(const Simulation& simulation) {
  const auto line = [](const char* name, const std::string& value) {
    std::cout << "  " << std::left << std::setw(16) << name << value << '\n';
  };
  const std::int64_t waits = simulation.waits.release_ns + simulation.waits.reload_ns +
                             simulation.waits.in_place_ns + simulation.waits.gather_ns;
  line("step", milliseconds(simulation.step_ns));
  line("of it", milliseconds(simulation.replay_ns) + " repeat operators, " + milliseconds(waits) +
                    " wait for copies" +
                    (simulation.slowed_ns > 0 ? ", " + milliseconds(simulation.slowed_ns) +
                                                    " are operators that took longer beside them"
                                              : ""));
  const PeakLocation& location = simulation.peak_location;
  line("device memory", to_string(simulation.peak) + " at most, in " +
                            (location.pass.backward ? "backward" : "forward") +
                            (location.scope.empty() ? "" : " of " + location.scope) +
                            (location.what.empty() ? "" : " (" + location.what + ")"));
  line("host memory", to_string(simulation.host_peak) + " at most");
  line("copied",
       to_string(simulation.bytes_out) + " out, " + to_string(simulation.bytes_back) + " back");
}

int run_trace(const TraceOptions& options) {
  const Profile profile = load_profile(options.profile);
  const Plan plan = load_plan(options.plan);
  SimulateOptions simulated;
  simulated.trace = true;
  simulated.schedule = accumulate(profile, options.micro_batches);
  const Simulation simulation = simulate(profile, plan, simulated);
  Trace trace;
  trace.processes.push_back(process_of("predicted", predicted_events(simulation, profile, plan)));
  write_output(options.out, to_chrome_json(trace));
  std::cout << options.out << " is written; open it at https://ui.perfetto.dev\n\n"
            << "What the step is predicted to do:\n";
  print(simulation);
  return 0;
}

}  // namespace

void add_trace(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "trace", "Write what a step does under a plan, stream by stream, for Perfetto");
  auto options = std::make_shared<TraceOptions>();
  command->add_option("--profile", options->profile, "What a recorded step showed (JSON)")
      ->required()
      ->type_name("FILE");
  command->add_option("--plan", options->plan, "The plan to execute (JSON)")
      ->required()
      ->type_name("FILE");
  command->add_option("-o,--out", options->out, "Where the trace goes (JSON)")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--micro-batches", options->micro_batches,
                   "How many a step has, one after another (default: 1)")
      ->check(CLI::Range(1, 10'000))
      ->type_name("N");
  command->footer(kTraceExamples);
  command->callback([options, &action] { action = [options] { return run_trace(*options); }; });
}

}  // namespace spillway::app
