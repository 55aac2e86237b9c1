/// `spillway explain`: a plan as tables, or the translation of rules.
#pragma once

#include <CLI/CLI.hpp>

#include "common/command_line.hpp"

namespace spillway::app {

/// Adds the command; when it is chosen, `action` becomes what it does.
void add_explain(CLI::App& app, Action& action);

}  // namespace spillway::app
