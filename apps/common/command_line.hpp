/// Reading a command line with CLI11, with errors that say what would have been right.
#pragma once

#include <functional>
#include <optional>

#include <CLI/CLI.hpp>

namespace spillway::app {

inline constexpr int kUsageError = 2;
inline constexpr int kInfeasible = 3;  ///< No plan fits.

/// What the chosen command does; set by its callback, run after the whole line was read.
using Action = std::function<int()>;

/// Reads the command line. Returns nothing if the action should run now, else the exit code: help
/// and version were printed (0), or the line was wrong (kUsageError, the reason on stderr).
[[nodiscard]] std::optional<int> read_command_line(CLI::App& app, int argc,
                                                   const char* const* argv);

}  // namespace spillway::app
