/// The command-line options of `spillway train`. One table of its options serves the C++
/// program and the Python package, so that names and help texts cannot disagree.
#pragma once

#include <string>
#include <vector>

namespace spillway::app {

/// A config and what is set on top of it.
struct ConfigChoice {
  std::string file;                     ///< Empty: the defaults.
  std::vector<std::string> shorthands;  ///< "model.layers=4", from options such as --layers.
  std::vector<std::string> overrides;   ///< From --set; they win.

  /// In the order in which they are read.
  [[nodiscard]] std::vector<std::string> all() const;
};

struct TrainOptions {
  ConfigChoice config;
  bool compare = false;
  bool baseline = false;  ///< Without a session.
  bool digest = false;
  int verify_every = 0;  ///< 0: only what the session verifies by itself.
  std::string trace;     ///< Where what the last step did goes; empty: it is not traced.
};

/// One option, for readers of command lines.
struct CommandOption {
  enum class Accepts { kNothing, kText, kPositive, kNotNegative, kShare, kWord };

  std::string name;               ///< "--layers"
  std::string value;              ///< What stands for its value in help: "N"; empty for a flag.
  std::string help;               ///< What it means, without the keys.
  std::vector<std::string> keys;  ///< Of the config, that it is short for; empty: none.
  Accepts accepts = Accepts::kText;
  std::vector<std::string> words;  ///< With kWord: those that are accepted.
  std::string old_name = {};       ///< Also accepted, with a warning, and not in help; or empty.

  /// With the keys that it is short for.
  [[nodiscard]] std::string full_help() const;
};

inline constexpr const char* kConfigHelp = "Settings (TOML); without one, the defaults";
inline constexpr const char* kSetHelp =
    "Set a key, after the file: model.layers=24; may be given several times";
inline constexpr const char* kShortForms = "Short forms of --set";

/// Short forms of keys, for every command that takes a config.
[[nodiscard]] const std::vector<CommandOption>& config_options();
/// Those of `train` beside config_options().
[[nodiscard]] const std::vector<CommandOption>& train_options();

/// Stores that a short form was given, with a value that it accepts.
void apply(ConfigChoice& config, const CommandOption& option, const std::string& value);
/// The same for any option of `train`; the value of a flag does not matter.
/// Errors: InvalidArgument if the value is not what the option takes.
void apply(TrainOptions& options, const CommandOption& option, const std::string& value);

}  // namespace spillway::app
