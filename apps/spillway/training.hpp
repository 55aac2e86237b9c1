/// What `spillway train` and `spillway profile` do. train_linked.cpp and profile_linked.cpp are
/// built where spillway::torch is there, training_absent.cpp elsewhere.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

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
  bool plain = false;  ///< Without a session.
  bool digest = false;
  int verify_every = 0;  ///< 0: only what the session verifies by itself.
  std::string trace;     ///< Where what the last step did goes; empty: it is not traced.
};

struct ProfileOptions {
  ConfigChoice config;
  std::string out = "profile.json";
};

/// FILE, --set, and the short forms of the model's keys.
void add_config_options(CLI::App& command, ConfigChoice& config);

/// Both give the exit code.
int run_train(const TrainOptions& options);
int run_profile(const ProfileOptions& options);

}  // namespace spillway::app
