/// What is done with a buffer between forward and backward.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace spillway {

enum class ActionKind { kKeep, kOffload, kRecompute };

/// "keep", "offload", "recompute".
[[nodiscard]] std::string_view to_string(ActionKind kind);
[[nodiscard]] std::optional<ActionKind> action_kind(std::string_view word);

struct Action {
  ActionKind kind = ActionKind::kKeep;
  bool shard = false;  ///< Each rank of the group holds a slice; not with kRecompute.

  bool operator==(const Action&) const = default;
};

/// "keep", "offload", "keep, sharded".
[[nodiscard]] std::string to_string(const Action& action);

}  // namespace spillway
