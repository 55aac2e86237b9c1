/// `spillway config`: the settings of a training run, checked and explained.
#pragma once

#include <CLI/CLI.hpp>

#include "common/command_line.hpp"

namespace spillway::app {

/// Adds the command; when it is chosen, `action` becomes what it does.
void add_config(CLI::App& app, Action& action);

}  // namespace spillway::app
