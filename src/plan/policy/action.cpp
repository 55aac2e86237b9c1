#include "spillway/plan/action.hpp"

namespace spillway {

std::string_view to_string(ActionKind kind) {
  switch (kind) {
    case ActionKind::kKeep:
      return "keep";
    case ActionKind::kOffload:
      return "offload";
    case ActionKind::kRecompute:
      return "recompute";
  }
  return {};
}

std::optional<ActionKind> action_kind(std::string_view word) {
  for (const ActionKind kind : {ActionKind::kKeep, ActionKind::kOffload, ActionKind::kRecompute}) {
    if (to_string(kind) == word) return kind;
  }
  return std::nullopt;
}

std::string to_string(const Action& action) {
  std::string text(to_string(action.kind));
  if (action.shard) text += ", sharded";
  return text;
}

}  // namespace spillway
