/// `spillway plan`: a profile and a budget or rules in, a plan out.
#pragma once

#include <CLI/CLI.hpp>

#include "common/command_line.hpp"

namespace spillway::app {

/// Adds the command; when it is chosen, `action` becomes what it does.
void add_plan(CLI::App& app, Action& action);

}  // namespace spillway::app
