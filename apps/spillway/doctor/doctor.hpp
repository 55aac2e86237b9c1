/// `spillway doctor`: what this machine has, how fast its link is, what will work, what to change.
#pragma once

#include <CLI/CLI.hpp>

#include "common/command_line.hpp"

namespace spillway::app {

/// Adds the command; when it is chosen, `action` becomes what it does.
void add_doctor(CLI::App& app, Action& action);

}  // namespace spillway::app
