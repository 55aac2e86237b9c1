/// The main function of a benchmark: its command line, its report on the terminal and in files, its
/// errors.
#pragma once

#include <functional>
#include <string>

#include <CLI/CLI.hpp>

#include "support/report.hpp"

namespace spillway::bench {

struct Program {
  std::string bench;     ///< "transfer": its folder; the program is bench_transfer.
  std::string question;  ///< The question it answers, in one sentence.
  /// Adds the benchmark's own options.
  std::function<void(CLI::App& app)> add_options;
  /// Opens the device to measure. Called after the command line was parsed.
  std::function<std::unique_ptr<Device>()> open_device;
  /// Fills in settings, figures and notes.
  std::function<void(Device& device, Report& report)> measure;
};

/// The exit code.
[[nodiscard]] int run_program(const Program& program, int argc, char** argv);

}  // namespace spillway::bench
