#include "training/profile.hpp"

#include <memory>

#include "training/training.hpp"

namespace spillway::app {
namespace {

constexpr const char* kProfileExamples =
    "\nExamples:\n"
    "  spillway profile --out p.json                 one recorded step of a small model\n"
    "  spillway profile run.toml --set model.tokens=4096 --device cuda --out p.json\n"
    "  spillway plan --profile p.json --rules r.toml --out plan.json\n"
    "  spillway train --plan plan.json               the same model by that plan\n"
    "\nAny program writes the profile of its own model, after a step that recorded:\n"
    "  C++     spillway::save_profile(*session.profile(), \"profile.json\");\n"
    "  Python  pathlib.Path(\"profile.json\").write_text(session.profile_json())\n";

}  // namespace

void add_profile(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "profile", "Record one training step of a small model and write what it showed");
  auto options = std::make_shared<ProfileOptions>();
  command->add_option("--out", options->out, "Where the profile goes")
      ->capture_default_str()
      ->type_name("FILE");
  add_config_options(*command, options->config);
  command->footer(kProfileExamples);
  command->callback([options, &action] { action = [options] { return run_profile(*options); }; });
}

}  // namespace spillway::app
