/// `spillway profile`: records one step of a small model and writes what it showed.
#pragma once

#include <CLI/CLI.hpp>

#include "common/command_line.hpp"

namespace spillway::app {

/// Adds the command; when it is chosen, `action` becomes what it does.
void add_profile(CLI::App& app, Action& action);

}  // namespace spillway::app
