/// What tests see of a session besides its interface; internal.
#pragma once

#include "engine/command_log.hpp"
#include "spillway/torch/session.hpp"
#include "torch/execute/session_core.hpp"

namespace spillway {

struct SessionInternals {
  /// Writes the engine's commands to `log` from here on; null: no more.
  static void log_commands(Session& session, CommandLog* log) { session.core_->log_commands(log); }
};

}  // namespace spillway
