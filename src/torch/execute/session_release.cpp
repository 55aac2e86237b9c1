#include <utility>

#include "torch/execute/session_core.hpp"

namespace spillway {

void SessionCore::return_to_owner(SavedBuffer& buffer) {
  count_fallback("the owner of a saved tensor freed or replaced its memory: left to it");
  if (buffer.ticket) {
    buffer.ticket = Ticket();  // Of what may be other content.
    device_->catch_up(*buffer.stream);
  }
  buffer.memory_hold = MemoryHold();
  buffer.digest = CopyChecks::kNone;
  buffer.action = ActionKind::kKeep;
  machine_.keep(buffer);
  never_move(*buffer.pass, buffer.id, "its owner freed or replaced its memory");
}

void SessionCore::never_move(Pass& pass, int id, const std::string& reason) {
  if (id < 0 || pass.over) return;
  if (pass.profiler != nullptr) {
    pass.profiler->fix(id, FixedReason::kOwnedElsewhere);
  } else {
    never_moved_.find({pass.key.chunk, id}, reason);
  }
}

}  // namespace spillway
