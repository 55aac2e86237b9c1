#include "planning/diff.hpp"

#include <iostream>
#include <memory>
#include <string>

#include "spillway/plan/diff.hpp"
#include "spillway/plan/plan.hpp"

namespace spillway::app {
namespace {

struct DiffOptions {
  std::string from;
  std::string to;
  bool json = false;
};

constexpr const char* kDiffExamples =
    "\nExamples:\n"
    "  spillway diff a.json b.json           limits, predictions, and buffers by scope\n"
    "  spillway diff a.json b.json --json    the same for scripts\n"
    "\nThe exit code is 0 if the plans are equal, 1 if they differ or cannot be read.\n";

int run_diff(const DiffOptions& options) {
  const PlanDifference found = difference(load_plan(options.from), load_plan(options.to));
  std::cout << (options.json ? to_json(found) : to_text(found));
  return found.empty() ? 0 : 1;
}

}  // namespace

void add_diff(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("diff", "Say what differs between two plans");
  auto options = std::make_shared<DiffOptions>();
  command->add_option("from", options->from, "A plan (JSON)")->required()->type_name("PLAN");
  command->add_option("to", options->to, "Another one")->required()->type_name("PLAN");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(kDiffExamples);
  command->callback([options, &action] { action = [options] { return run_diff(*options); }; });
}

}  // namespace spillway::app
