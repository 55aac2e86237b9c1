/// `spillway diff`: what differs between two plans.
#pragma once

#include <CLI/CLI.hpp>

#include "common/command_line.hpp"

namespace spillway::app {

/// Adds the command; when it is chosen, `action` becomes what it does.
void add_diff(CLI::App& app, Action& action);

}  // namespace spillway::app
