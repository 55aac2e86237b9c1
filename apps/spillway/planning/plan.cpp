#include "planning/plan.hpp"

#include <iostream>
#include <memory>
#include <string>

#include "planning/plan_budget.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/explain.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"
#include "spillway/plan/simulate.hpp"

namespace spillway::app {
namespace {

struct PlanOptions : BudgetPlanOptions {
  bool curve = false;
};

constexpr const char* kPlanExamples =
    "\nExamples:\n"
    "  spillway plan --profile p.json --budget 8GiB --out plan.json\n"
    "  spillway plan --profile p.json --budget 33%     of what a step needs with everything kept\n"
    "  spillway plan --profile p.json --budget 8GiB --rules r.toml    what rules match is pinned\n"
    "  spillway plan --profile p.json --max-slowdown 1.05    the least memory for that\n"
    "  spillway plan --profile p.json --curve --out curve.json --svg curve.svg\n"
    "  spillway plan --profile p.json --rules r.toml --out plan.json    by rules alone\n"
    "  spillway explain plan.json         what the plan does, and why\n"
    "\nBy rules alone and without --out the plan goes to stdout. docs/planner.md says how the\n"
    "planner works, docs/rules.md describes the language of rules.\n"
    "Exit code 3: no plan fits; the text says what the smallest budget is and what sets it.\n";

int run_plan_by_rules(const PlanOptions& options) {
  const Profile profile = load_profile(options.profile);
  Rules rules = load_rules(options.rules);
  if (options.host) rules.limits.host = options.host;
  Plan plan = make_plan(profile, rules);
  set_windows(profile, plan);
  if (options.out.empty()) {
    std::cout << to_json(plan);
    return 0;
  }
  save_plan(plan, options.out);
  std::cout << options.out << " is written; `spillway explain " << options.out << "` says more\n\n"
            << summarize(plan);
  return 0;
}

int run_plan(const PlanOptions& options) {
  if (options.curve) return run_plan_curve(options);
  if (options.budget || options.max_slowdown) return run_plan_for_budget(options);
  return run_plan_by_rules(options);
}

void check(const PlanOptions& options) {
  const int aims =
      (options.budget ? 1 : 0) + (options.max_slowdown ? 1 : 0) + (options.curve ? 1 : 0);
  if (aims > 1) {
    throw InvalidArgument("plan",
                          "--budget, --max-slowdown and --curve are different aims; give one of "
                          "them");
  }
  if (aims == 0 && options.rules.empty()) {
    throw InvalidArgument("plan",
                          "--budget, --max-slowdown, --curve or --rules is required: what should "
                          "the plan be for?");
  }
  if (aims == 0 && (options.time_limit || options.gap)) {
    throw InvalidArgument("plan",
                          "--time-limit and --gap are for the planner; rules alone need no time");
  }
  if (!options.curve && (!options.budgets.empty() || !options.svg.empty())) {
    throw InvalidArgument("plan", "--budgets and --svg have a meaning only with --curve");
  }
}

void add_planner_options(CLI::App& command, PlanOptions& options) {
  command
      .add_option_function<std::string>(
          "--budget", [&options](const std::string& text) { options.budget = parse_budget(text); },
          "The fastest step within so much device memory: 8GiB, 33%")
      ->type_name("SIZE");
  command
      .add_option("--max-slowdown", options.max_slowdown,
                  "The least memory for a step that takes at most so many times as long as with "
                  "everything kept: 1.05")
      ->check(CLI::Range(1.0001, 1e6))
      ->type_name("TIMES");
  command.add_flag("--curve", options.curve, "Plans for many budgets, as a table");
  command
      .add_option_function<std::vector<std::string>>(
          "--budgets",
          [&options](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) options.budgets.push_back(parse_budget(text));
          },
          "Of the curve (default: about a dozen)")
      ->delimiter(',')
      ->type_name("SIZE,...");
  command.add_option("--svg", options.svg, "Where a picture of the curve goes")->type_name("FILE");
  command
      .add_option_function<std::string>(
          "--host", [&options](const std::string& text) { options.host = parse_bytes(text); },
          "The most host memory for offloaded buffers")
      ->type_name("SIZE");
  command.add_option("--time-limit", options.time_limit, "For each plan (default: 5 s)")
      ->check(CLI::Range(1e-3, 1e6))
      ->type_name("SECONDS");
  command
      .add_option(
          "--gap", options.gap,
          "The search ends when the gap to the lower bound is at most this (default: 0.001)")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("SHARE");
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "plan", "Make a plan: what to keep, offload and recompute, for a budget or by rules");
  auto options = std::make_shared<PlanOptions>();
  command->add_option("--profile", options->profile, "What a recorded step showed (JSON)")
      ->required()
      ->type_name("FILE");
  command->add_option("--rules", options->rules, "The rules (TOML)")->type_name("FILE");
  command->add_option("-o,--out", options->out, "Where the plan or the curve goes (JSON)")
      ->type_name("FILE");
  add_planner_options(*command, *options);
  command->footer(kPlanExamples);
  command->callback([options, &action] {
    check(*options);
    action = [options] { return run_plan(*options); };
  });
}

}  // namespace spillway::app
