/// `spillway trace`: what a step does under a plan, as a file for Perfetto.
#pragma once

#include <CLI/CLI.hpp>

#include "common/command_line.hpp"

namespace spillway::app {

/// Adds the command; when it is chosen, `action` becomes what it does.
void add_trace(CLI::App& app, Action& action);

}  // namespace spillway::app
