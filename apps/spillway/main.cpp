/// The program `spillway`: one command a file, each adds itself to the command line.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>

#include <CLI/CLI.hpp>

#include "common/command_line.hpp"
#include "doctor/doctor.hpp"
#include "planning/diff.hpp"
#include "planning/explain.hpp"
#include "planning/plan.hpp"
#include "planning/trace.hpp"
#include "spillway/core/error.hpp"
#include "training/config.hpp"
#include "training/profile.hpp"
#include "training/train.hpp"

namespace {

constexpr const char* kDescription =
    "Spillway moves buffers between a device and host memory, hidden behind compute: made for the\n"
    "activations that training saves. This program looks at a machine and says what works on it,\n"
    "makes and explains plans of what to keep, offload and recompute, and trains a small model\n"
    "without and with them.\n";

constexpr const char* kFooter =
    "\nExamples:\n"
    "  spillway doctor                  what works here, what to change, and how fast the link is\n"
    "  spillway doctor --json           the same for scripts\n"
    "  spillway train --compare         a small model without and with Spillway, bit for bit\n"
    "  spillway profile --out p.json    what one recorded step of it shows\n"
    "  spillway plan --profile p.json --budget 8GiB --out plan.json\n"
    "  spillway explain plan.json       what the plan does with which buffers, and why\n"
    "  spillway diff a.json b.json      what differs between two plans\n"
    "  spillway trace --profile p.json --plan plan.json -o trace.json    the step, for Perfetto\n"
    "  spillway config --defaults       all settings of a training run, with what they mean\n"
    "  spillway doctor --help           all options of a command\n"
    "\nRead more: README.md, docs/architecture.md (the parts), docs/transfers.md (how bytes "
    "move),\n"
    "docs/session.md (what a session does), docs/rules.md (the language of rules),\n"
    "docs/profile-and-plan.md (the files), docs/train.md (training runs).\n";

int run(int argc, char** argv) {
  CLI::App app(kDescription, "spillway");
  app.footer(kFooter);
  app.set_version_flag("--version", "spillway " SPILLWAY_VERSION);
  app.require_subcommand(0, 1);
  spillway::app::Action action = [&app] {
    std::cout << app.help();
    return 0;
  };
  spillway::app::add_doctor(app, action);
  spillway::app::add_plan(app, action);
  spillway::app::add_explain(app, action);
  spillway::app::add_diff(app, action);
  spillway::app::add_profile(app, action);
  spillway::app::add_trace(app, action);
  spillway::app::add_train(app, action);
  spillway::app::add_config(app, action);
  if (const auto code = spillway::app::read_command_line(app, argc, argv)) return *code;
  return action();
}

/// Handlers run from the last registered to the first: what the run itself started has ended by
/// then. What is skipped is what libraries set up when they were loaded; taking torch's table of
/// operators apart takes a quarter of a short command's time.
void end_without_unloading(int status, void* /*unused*/) {
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace

int main(int argc, char** argv) {
  ::on_exit(end_without_unloading, nullptr);
  try {
    return run(argc, argv);
  } catch (const spillway::PlanInfeasible& error) {
    std::cerr << "error: " << error.what() << '\n';
    return spillway::app::kInfeasible;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
