#include "training/config.hpp"

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "spillway/core/error.hpp"
#include "train/config/config.hpp"
#include "train/config/config_keys.hpp"

namespace spillway::app {
namespace {

struct ConfigOptions {
  std::string file;
  std::vector<std::string> overrides;
  bool defaults = false;
  bool reference = false;
};

constexpr const char* kConfigExamples =
    "\nExamples:\n"
    "  spillway config --defaults > run.toml           all keys, each with a line of explanation\n"
    "  spillway config run.toml                        check a file and print what it comes to\n"
    "  spillway config run.toml --set model.layers=24 --set memory.budget=33%\n"
    "  spillway config --set parallel.pipeline=4       the defaults with a change\n"
    "\nThe output is itself a config. What is wrong is named with file, line and key, or with the\n"
    "--set it came from. docs/train.md describes the keys.\n";

int run_config(const ConfigOptions& options) {
  if (options.reference) {
    std::cout << reference_markdown();
    return 0;
  }
  std::cout << to_toml(options.defaults ? TrainConfig()
                                        : load_config(options.file, options.overrides));
  return 0;
}

void check(const ConfigOptions& options) {
  const bool given = !options.file.empty() || !options.overrides.empty();
  if (options.defaults && options.reference) {
    throw InvalidArgument("config", "--defaults and --reference are different forms; give one");
  }
  if ((options.defaults || options.reference) && given) {
    throw InvalidArgument("config",
                          "--defaults and --reference print what is built in; leave out the file "
                          "and --set");
  }
  if (!options.defaults && !options.reference && !given) {
    throw InvalidArgument("config", "give a file, --set or --defaults");
  }
}

}  // namespace

void add_config(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "config", "Print the settings of a training run: the defaults, or a file's, checked");
  auto options = std::make_shared<ConfigOptions>();
  command->add_option("file", options->file, "A config (TOML)")->type_name("FILE");
  command
      ->add_option("--set", options->overrides,
                   "Set a key, after the file: model.layers=24; may be given several times")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command->add_flag("--defaults", options->defaults, "Print every key with its default");
  command->add_flag("--reference", options->reference, "Print the keys as Markdown");
  command->footer(kConfigExamples);
  command->callback([options, &action] {
    check(*options);
    action = [options] { return run_config(*options); };
  });
}

}  // namespace spillway::app
