/// The main function of a benchmark that trains on the best available device. For programs that
/// link spillway_train.
#pragma once

#include "devices/devices.hpp"
#include "support/program.hpp"
#include "train/model/device_memory.hpp"

namespace spillway::bench {

/// Adds the notes of all training benchmarks. `judge`: whether limits apply to this run.
inline void add_training_notes(Report& report, bool judge) {
  report.notes.emplace_back(
      "Gradients are compared under deterministic algorithms, times taken without them.");
  if (!judge) report.notes.emplace_back("Not judged: a small model, or no GPU.");
}

/// `Options` are those of the benchmark; the names are as in Program.
template <typename Options>
[[nodiscard]] int run_training_program(const std::string& bench, const std::string& question,
                                       void (*add_options)(CLI::App&, Options&),
                                       void (*measure)(const Options&, Report&), int argc,
                                       char** argv) {
  Options options;
  Program program;
  program.bench = bench;
  program.question = question;
  program.add_options = [&](CLI::App& app) { add_options(app, options); };
  program.open_device = [] {
    return app::open_device(app::parse_device(app::best_device().is_cuda() ? "cuda" : "host"));
  };
  program.measure = [&](Device&, Report& report) { measure(options, report); };
  return run_program(program, argc, argv);
}

}  // namespace spillway::bench
