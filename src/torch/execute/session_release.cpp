#include <utility>

#include "torch/execute/session_core.hpp"

namespace spillway {

void SessionCore::release_overdue() {
  while (const std::optional<WeakBuffer> due = out_window_.pop_overdue()) {
    release_from_window(due->lock());
  }
}

void SessionCore::release_to_allowance(Pass& pass, std::size_t site) {
  if (!has_allowance(pass) || site >= pass.layout->forward_allowance.size()) return;
  const std::size_t allowed = allowed_in(pass, pass.layout->forward_allowance[site]);
  while (on_device_ > allowed) {
    const std::optional<WeakBuffer> oldest = out_window_.pop_oldest();
    if (!oldest) return make_room(pass, allowed);
    release_from_window(oldest->lock());
  }
  if (plan_->max_pending_release) release_overdue();
}

void SessionCore::release_from_window(const BufferRef& buffer) {
  if (buffer == nullptr) return;
  buffer->in_window = false;
  if (!buffer->ticket) {
    // The tail is larger than in the last step, so fewer of its copies can be skipped.
    buffer->pass->tail = {};
    const bool copied = copy_out(*buffer);
    copy_skipped();
    if (!copied) return;
  }
  release(buffer);
}

void SessionCore::release(const BufferRef& released) {
  SavedBuffer& buffer = *released;
  if (!buffer.has_saved_memory(*buffer.storage.unsafeGetStorageImpl())) {
    return return_to_owner(buffer);
  }
  if (buffer.digest >= 0) {
    buffer.digest_at_release = digest_of(buffer.storage, *buffer.stream);
    // Autograd's own frees in backward are not seen, so this may take memory, which a budget lacks.
    if (recording_ || !plan_->budget) copy_sources_.add(released);
  }
  clock_.uses_stream();
  waits_.time(WaitCause::kRelease, *buffer.stream, [&] {
    engine_->release(buffer.ticket, *buffer.stream);
    device_->catch_up(*buffer.stream);
  });
  buffer.memory_hold = MemoryHold();
  keep_until_read(buffer, buffer.storage);
  mutex_.free_outside(std::exchange(buffer.storage, c10::Storage()));
  count_freed(buffer.bytes);
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
  never_move(*buffer.pass, buffer.id, "its owner freed or replaced its memory");
}

void SessionCore::never_move(Pass& pass, int id, const std::string& reason) {
  if (id < 0 || pass.over) return;
  if (pass.profiler != nullptr) {
    pass.profiler->fix(id, FixedReason::kOwnedElsewhere);
  } else {
    owned_elsewhere_[{pass.key.chunk, id}] = reason;
  }
}

void SessionCore::make_room(Pass& pass, std::size_t allowed) {
  if (pass.growth == 0 && !verifying_) return;
  const ChunkLayout& layout = *pass.layout;
  for (; pass.next_kept < layout.may_offload.size() && on_device_ > allowed; ++pass.next_kept) {
    const BufferRef buffer = pass.buffers[pass.next_kept].lock();
    const bool kept = buffer != nullptr && layout.may_offload[pass.next_kept] &&
                      buffer->action == ActionKind::kKeep && buffer->on_device();
    // Moving what others hold would free nothing.
    if (!kept || Bytes(buffer->bytes) < options_.small || buffer->storage.use_count() > 1) continue;
    if (checks_copies_) buffer->digest = digest_of(buffer->storage, *buffer->stream);
    if (!copy_out(*buffer)) return;
    buffer->action = ActionKind::kOffload;
    if (!verifying_) {
      count_fallback(
          "activation larger than profiled: a buffer planned to stay on the device was offloaded");
    }
    release(buffer);
  }
}

std::size_t SessionCore::allowed_in(const Pass& pass, std::size_t allowance) const {
  if (plan_ == nullptr || !plan_->budget) return allowance;
  // What took the place of skipped buffers would be there when those were gone already.
  const std::size_t more =
      pass.growth + pass.skipped_bytes + (verifying_ ? pass.layout->verification_bytes : 0);
  return allowance - std::min(allowance, more);
}

}  // namespace spillway
