/// What `spillway train` and `spillway profile` do. train_linked.cpp and profile_linked.cpp are
/// built where spillway::torch is there, training_absent.cpp elsewhere.
#pragma once

#include <functional>
#include <string>

#include <CLI/CLI.hpp>

#include "train/config/train_options.hpp"

namespace spillway::app {

struct ProfileOptions {
  ConfigChoice config;
  std::string out = "profile.json";
};

/// Adds one option, and its old name without help; `given` gets the value, any value for a flag.
CLI::Option* add_option(CLI::App& command, const CommandOption& option,
                        std::function<void(const std::string&)> given);
/// FILE, --set, and the short forms of the model's keys.
void add_config_options(CLI::App& command, ConfigChoice& config);

/// Both give the exit code.
int run_train(const TrainOptions& options);
int run_profile(const ProfileOptions& options);

}  // namespace spillway::app
