#include <utility>

#include "training/training.hpp"
#include "util/renamed.hpp"

namespace spillway::app {
namespace {

using Accepts = CommandOption::Accepts;

void add_check(CLI::Option& made, const CommandOption& option) {
  switch (option.accepts) {
    case Accepts::kNothing:
    case Accepts::kText:
      return;
    case Accepts::kPositive:
      made.check(CLI::PositiveNumber);
      return;
    case Accepts::kNotNegative:
      made.check(CLI::NonNegativeNumber);
      return;
    case Accepts::kShare:
      made.check(CLI::Range(0.0, 0.99));
      return;
    case Accepts::kWord:
      made.check(CLI::IsMember(option.words));
      return;
  }
}

void add_old_name(CLI::App& command, const CommandOption& option,
                  const std::function<void(const std::string&)>& given) {
  CommandOption old = option;
  old.name = std::exchange(old.old_name, "");
  const auto warn = [given, old = old.name, name = option.name](const std::string& value) {
    warn_renamed("option", old, name);
    given(value);
  };
  add_option(command, old, warn)->group("");  // Hidden.
}

}  // namespace

CLI::Option* add_option(CLI::App& command, const CommandOption& option,
                        std::function<void(const std::string&)> given) {
  if (!option.old_name.empty()) add_old_name(command, option, given);
  if (option.accepts == Accepts::kNothing) {
    return command.add_flag_callback(
        option.name, [given] { given(""); }, option.full_help());
  }
  CLI::Option* made =
      command.add_option_function<std::string>(option.name, given, option.full_help());
  add_check(*made, option);
  made->type_name(option.value);
  if (!option.keys.empty()) made->group(kShortForms);
  return made;
}

void add_config_options(CLI::App& command, ConfigChoice& config) {
  command.add_option("config", config.file, kConfigHelp)->type_name("FILE");
  command.add_option("--set", config.overrides, kSetHelp)
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  for (const CommandOption& option : config_options()) {
    add_option(command, option,
               [&config, &option](const std::string& value) { apply(config, option, value); });
  }
}

}  // namespace spillway::app
