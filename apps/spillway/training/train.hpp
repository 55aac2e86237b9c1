/// `spillway train`: trains a small model with a session, and compares it with one without.
#pragma once

#include <CLI/CLI.hpp>

#include "common/command_line.hpp"

namespace spillway::app {

/// Adds the command; when it is chosen, `action` becomes what it does.
void add_train(CLI::App& app, Action& action);

}  // namespace spillway::app
