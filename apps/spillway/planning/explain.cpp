#include "planning/explain.hpp"

#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "spillway/core/error.hpp"
#include "spillway/plan/explain.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"

namespace spillway::app {
namespace {

struct ExplainOptions {
  std::string plan;
  std::string rules;
  std::string profile;
  std::optional<int> layers;
  int pipeline_rank = 0;
};

constexpr const char* kExplainExamples =
    "\nExamples:\n"
    "  spillway explain plan.json                     buffers, bytes, action and reason by scope\n"
    "  spillway explain plan.json --profile p.json    also who made the buffers\n"
    "  spillway explain --rules r.toml --layers 16    the settings of other frameworks as rules\n"
    "\nWhat --rules prints is itself a rules file. docs/rules.md describes the language.\n";

void check(const ExplainOptions& options) {
  if (options.plan.empty() == options.rules.empty()) {
    throw InvalidArgument("explain", "give either a plan's file or --rules and a rules file");
  }
  if (options.layers && !options.profile.empty()) {
    throw InvalidArgument("explain",
                          "--layers and --profile both say how many layers there are; "
                          "give one of them");
  }
  if (options.layers && options.rules.empty()) {
    throw InvalidArgument("explain", "--layers has a meaning only with --rules");
  }
}

ModelShape shape_for(const Rules& rules, const ExplainOptions& options) {
  ModelShape shape;
  if (!options.profile.empty()) {
    shape = shape_of(load_profile(options.profile));
  } else if (options.layers) {
    shape = shape_of(*options.layers);
  } else if (rules.settings) {
    throw InvalidArgument("explain", options.rules +
                                         " has settings of a framework, whose rules depend on the "
                                         "model's layers; give --layers or --profile");
  }
  if (options.pipeline_rank > 0) shape.pipeline_rank = options.pipeline_rank;
  return shape;
}

int run_explain(const ExplainOptions& options) {
  if (!options.rules.empty()) {
    const Rules rules = load_rules(options.rules);
    std::cout << explain_rules(rules, shape_for(rules, options));
    return 0;
  }
  const Plan plan = load_plan(options.plan);
  std::optional<Profile> profile;
  if (!options.profile.empty()) profile = load_profile(options.profile);
  std::cout << explain(plan, profile ? &*profile : nullptr);
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "explain", "Say what a plan does with which buffers and why, or what rules mean");
  auto options = std::make_shared<ExplainOptions>();
  command->add_option("plan", options->plan, "A plan (JSON)")->type_name("PLAN");
  command
      ->add_option("--rules", options->rules, "Show these rules, settings of frameworks translated")
      ->type_name("FILE");
  command->add_option("--profile", options->profile, "The profile the plan or the rules are for")
      ->type_name("FILE");
  command->add_option("--layers", options->layers, "With --rules: how many layers the model has")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  command
      ->add_option("--pipeline-rank", options->pipeline_rank,
                   "With --rules: the rank in the pipeline (default: the profile's, else 0)")
      ->check(CLI::Range(0, 1'000'000))
      ->type_name("N");
  command->footer(kExplainExamples);
  command->callback([options, &action] {
    check(*options);
    action = [options] { return run_explain(*options); };
  });
}

}  // namespace spillway::app
