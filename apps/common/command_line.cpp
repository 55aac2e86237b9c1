#include "common/command_line.hpp"

#include <iostream>
#include <string>
#include <vector>

#include "spillway/core/error.hpp"
#include "spillway/core/nearest.hpp"

namespace spillway::app {
namespace {

/// The command that the line is for: the deepest one that was recognised.
const CLI::App& chosen(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app : *commands.front();
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // An old name.
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

/// "unknown command "docter"; did you mean "doctor"?"
std::string unknown_word(const CLI::App& app, const std::string& word) {
  const CLI::App& command = chosen(app);
  const bool option = word.starts_with('-');
  const std::vector<std::string> words = option ? option_names(command) : command_names(command);
  if (words.empty())
    return "unexpected \"" + word + "\"; " + command.get_name() + " takes no such word";
  const std::string text =
      std::string("unknown ") + (option ? "option" : "command") + " \"" + word + "\"";
  return text + "; " + suggestion(word.substr(0, word.find('=')), words);
}

}  // namespace

std::optional<int> read_command_line(CLI::App& app, int argc, const char* const* argv) {
  const auto refuse = [&](const std::string& reason) {
    const std::string command = &chosen(app) == &app ? "" : " " + chosen(app).get_name();
    std::cerr << "error: " << reason << "\nSee `" << app.get_name() << command << " --help`.\n";
    return kUsageError;
  };
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ExtrasError& error) {
    const std::vector<std::string> rest = app.remaining(true);
    return refuse(rest.empty() ? error.what() : unknown_word(app, rest.front()));
  } catch (const CLI::ParseError& error) {
    return refuse(error.what());
  } catch (const Error& error) {  // Of one of our own readers.
    return refuse(error.what());
  }
}

}  // namespace spillway::app
