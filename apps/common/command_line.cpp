#include "common/command_line.hpp"

#include <algorithm>
#include <iostream>
#include <numeric>

#include "spillway/core/error.hpp"

namespace spillway::app {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

/// The command the words were meant for: the deepest one that was recognised.
const CLI::App& chosen(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app : *commands.front();
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
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

std::string list(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// "unknown command "docter"; did you mean "doctor"?"
std::string unknown_word(const CLI::App& app, const std::string& word) {
  const CLI::App& place = chosen(app);
  const bool option = word.starts_with('-');
  const std::vector<std::string> words = option ? option_names(place) : command_names(place);
  if (words.empty())
    return "unexpected \"" + word + "\"; " + place.get_name() + " takes options only";
  std::string text =
      std::string("unknown ") + (option ? "option" : "command") + " \"" + word + "\"";
  if (const auto near = nearest_word(word.substr(0, word.find('=')), words)) {
    return text + "; did you mean \"" + *near + "\"?";
  }
  return text + "; there are: " + list(words);
}

}  // namespace

std::optional<std::string> nearest_word(std::string_view word,
                                        const std::vector<std::string>& words) {
  std::optional<std::string> nearest;
  std::size_t best = std::max<std::size_t>(word.size() / 2, 2) + 1;
  for (const std::string& candidate : words) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

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
  } catch (const Error& error) {  // A text that one of our own readers refused.
    return refuse(error.what());
  }
}

}  // namespace spillway::app
