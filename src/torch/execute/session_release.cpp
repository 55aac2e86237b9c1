#include <utility>

#include "torch/execute/session_core.hpp"

namespace spillway {

void SessionCore::release_to_allowance(Pass& pass, std::size_t site) {
  std::optional<std::int64_t> allowed;
  if (TorchPort::has_allowance(pass) && site < pass.layout->forward_allowance.size()) {
    allowed = allowed_in(pass, pass.layout->forward_allowance[site]);
  }
  machine_.saved(pass, allowed);
}

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

void SessionCore::make_room(Pass& pass, std::int64_t allowed) {
  if (pass.growth == 0 && !task_.verifies()) return;
  const ChunkLayout& layout = *pass.layout;
  for (; pass.next_kept < layout.may_offload.size() && machine_.on_device() > allowed;
       ++pass.next_kept) {
    const BufferRef buffer = pass.buffers[pass.next_kept].lock();
    const bool kept = buffer != nullptr && layout.may_offload[pass.next_kept] &&
                      buffer->action == ActionKind::kKeep && buffer->on_device();
    // Moving what others hold would free nothing.
    if (!kept || Bytes(buffer->bytes) < options_.small || buffer->storage.use_count() > 1) continue;
    if (task_.checks_copies) buffer->digest = digest_of(buffer->storage, *buffer->stream);
    buffer->action = ActionKind::kOffload;
    if (!machine_.evict(*buffer)) {
      buffer->action = ActionKind::kKeep;
      return;
    }
    if (!task_.verifies()) {
      count_fallback(
          "activation larger than profiled: a buffer planned to stay on the device was offloaded");
    }
  }
}

std::int64_t SessionCore::allowed_in(const Pass& pass, std::size_t allowance) const {
  if (current_.plan() == nullptr || !current_.plan()->budget)
    return static_cast<std::int64_t>(allowance);
  // What took the place of skipped buffers would be there when those were gone already.
  const std::size_t more =
      pass.growth + pass.skipped_bytes + (task_.verifies() ? pass.layout->verification_bytes : 0);
  return static_cast<std::int64_t>(allowance - std::min(allowance, more));
}

}  // namespace spillway
