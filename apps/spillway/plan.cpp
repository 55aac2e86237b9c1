#include "plan.hpp"

#include <iostream>
#include <memory>
#include <string>

#include "spillway/plan/explain.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"

namespace spillway::app {
namespace {

struct PlanOptions {
  std::string profile;
  std::string rules;
  std::string out;
};

constexpr const char* kExamples =
    "\nExamples:\n"
    "  spillway plan --profile p.json --rules r.toml --out plan.json\n"
    "  spillway plan --profile p.json --rules r.toml | jq .notes\n"
    "  spillway explain plan.json         what the plan does, and why\n"
    "\nThe first rule that matches a buffer decides; docs/rules.md describes the language.\n";

int run_plan(const PlanOptions& options) {
  const Profile profile = load_profile(options.profile);
  const Plan plan = make_plan(profile, load_rules(options.rules));
  if (options.out.empty()) {
    std::cout << to_json(plan);
    return 0;
  }
  save_plan(plan, options.out);
  std::cout << options.out << " is written; `spillway explain " << options.out << "` says more\n\n"
            << summarize(plan);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("plan", "Make a plan: what to keep, offload and recompute, by rules");
  auto options = std::make_shared<PlanOptions>();
  command->add_option("--profile", options->profile, "What a recorded step showed (JSON)")
      ->required()
      ->type_name("FILE");
  command->add_option("--rules", options->rules, "The rules (TOML)")->required()->type_name("FILE");
  command->add_option("--out", options->out, "Where the plan goes (default: JSON on stdout)")
      ->type_name("FILE");
  command->footer(kExamples);
  command->callback([options, &action] { action = [options] { return run_plan(*options); }; });
}

}  // namespace spillway::app
