#include "torch/execute/torch_port.hpp"

#include <algorithm>
#include <utility>

#include "torch/execute/session_core.hpp"

namespace spillway {

bool TorchPort::returned_to_owner(SavedBuffer& buffer) {
  if (buffer.has_saved_memory(*buffer.storage.unsafeGetStorageImpl())) return false;
  core_.return_to_owner(buffer);
  return true;
}

bool TorchPort::copy_out(SavedBuffer& buffer) {
  if (returned_to_owner(buffer)) return false;
  MemoryHold hold = core_.device_->hold(buffer.storage);
  const auto* const data = static_cast<const std::byte*>(buffer.storage.data());
  std::optional<Ticket> ticket = core_.engine_->offload({data, buffer.bytes}, *buffer.stream);
  if (!ticket) {
    note_no_room(buffer.bytes);
    return false;
  }
  buffer.ticket = std::move(*ticket);
  buffer.memory_hold = std::move(hold);
  if (!buffer.memory_hold && !core_.device_->computes_beside()) {
    // Nothing else keeps the memory readable until the copy has been made.
    core_.engine_->release(buffer.ticket, *buffer.stream);
    core_.device_->catch_up(*buffer.stream);
  }
  core_.step_.bytes_out += Bytes(buffer.bytes);
  core_.log_.copied_out(buffer.pass->number, buffer.id, buffer.ticket.id());
  return true;
}

void TorchPort::note_no_room(std::size_t bytes) {
  const std::string problem = core_.slab_->problem();
  core_.count_fallback(problem.empty() ? "the host tier is full"
                                       : "host memory could not be allocated");
  if (std::exchange(warned_no_room_, true)) return;
  const CountingTier& tier = *core_.tier_;
  const std::string what =
      problem.empty()
          ? to_string(tier.counts().current) + " of at most " + to_string(tier.capacity()) +
                " are in use; raise `host` under [limits] in the rules, or SessionOptions::host"
          : problem;
  TORCH_WARN(
      "[offload] no room in host memory for a buffer of ", to_string(Bytes(bytes)),
      ", which stays on the device: ", what,
      ". The session continues and counts such buffers in its report. This warning appears once "
      "per session.");
}

bool TorchPort::release(SavedBuffer& buffer) {
  if (returned_to_owner(buffer)) return false;
  if (buffer.is_checked()) {
    core_.copies_.digest_released(buffer, buffer.storage);
    // Autograd's own frees in backward are not seen, so this may take memory, which a budget lacks.
    if (core_.task_.records() || !core_.current_.plan()->budget) {
      core_.copies_.sources().add(buffer.shared_from_this());
    }
  }
  core_.log_.wait(WaitCause::kRelease, *buffer.stream, [&] {
    core_.engine_->release(buffer.ticket, *buffer.stream);
    core_.device_->catch_up(*buffer.stream);
  });
  buffer.memory_hold = MemoryHold();
  core_.streams_.keep_until_read(buffer, buffer.storage);
  core_.mutex_.free_outside(std::exchange(buffer.storage, c10::Storage()));
  return true;
}

bool TorchPort::adopt(SavedBuffer& buffer) {
  const auto alive = buffer.original.lock();
  if (!alive) return false;
  // Autograd would have held this storage and read what it has now, whoever wrote that, and
  // wherever its owner put it.
  const bool moved = !buffer.has_saved_memory(*alive);
  c10::Storage before = std::exchange(buffer.storage, c10::Storage(alive));
  if (before) core_.mutex_.free_outside(std::move(before));
  ++core_.step_.used_in_place;
  if (moved) {
    core_.return_to_owner(buffer);
  } else {
    note_held(buffer);
  }
  return true;
}

void TorchPort::note_held(const SavedBuffer& buffer) {
  const Pass& pass = *buffer.pass;
  if (pass.profiler == nullptr || buffer.id < 0) return;
  // A thread of a backend may release it sooner on one rank than on another. What is planned must
  // not depend on that: ranks that repeat collectives together would repeat different ones.
  if (buffer.value >= 0 && pass.book->value(buffer.value).communicated) return;
  pass.profiler->fix(buffer.id, FixedReason::kCallerOwned);
}

void TorchPort::reload(SavedBuffer& buffer) {
  // Memory of the stream that runs: of any other one's it is unknown who still reads it.
  Stream& stream = core_.device_->current_stream();
  c10::Storage storage = core_.device_->allocate(buffer.bytes, stream);
  auto* const data = static_cast<std::byte*>(storage.mutable_data());
  core_.engine_->reload(buffer.ticket, {data, buffer.bytes}, stream);
  buffer.stream = &stream;
  buffer.storage = std::move(storage);
  buffer.readers.clear();
  core_.step_.bytes_back += Bytes(buffer.bytes);
}

bool TorchPort::prefetch(SavedBuffer& buffer) {
  try {
    reload(buffer);
    return true;
  } catch (const c10::OutOfMemoryError&) {
    core_.count_fallback("no device memory to prefetch a buffer: reloaded when it was needed");
    return false;
  }
}

void TorchPort::wait(SavedBuffer& buffer, bool first) {
  Stream& stream = core_.device_->current_stream();
  if (std::ranges::find(buffer.readers, &stream) != buffer.readers.end()) return;
  core_.log_.wait(WaitCause::kReload, stream, [&] {
    core_.engine_->ready(buffer.ticket, stream);
    core_.device_->catch_up(stream);
  });
  buffer.readers.push_back(&stream);
  if (first && buffer.is_checked()) core_.check_copy(buffer);
}

void TorchPort::used_in_place(const SavedBuffer& buffer) {
  ++core_.step_.used_in_place;
  // Others still hold it, so moving it frees nothing.
  if (buffer.storage.use_count() > 1) note_held(buffer);
}

void TorchPort::copy_skipped(const SavedBuffer& buffer) {
  ++core_.step_.offloads_skipped.buffers;
  core_.step_.offloads_skipped.bytes += Bytes(buffer.bytes);
}

void TorchPort::late(const SavedBuffer& /*buffer*/) { ++core_.step_.late_reloads; }

Pass* TorchPort::next_backward() {
  const std::optional<PassKey> next = core_.next_backward();
  if (!next) return nullptr;
  for (const auto& pass : core_.passes_) {
    if (pass->key == *next && !pass->backward_begun) return pass.get();
  }
  return nullptr;
}

std::shared_ptr<SavedBuffer> TorchPort::next_to_evict(Pass& pass) {
  if (pass.reserve == 0 || pass.layout == nullptr || pass.next_site == 0) return nullptr;
  const ChunkLayout& layout = *pass.layout;
  const auto last = static_cast<std::size_t>(layout.sites[pass.next_site - 1].buffer);
  bool first = true;  // All before this one were considered for good.
  for (std::size_t id = pass.next_kept; id <= last; ++id) {
    std::shared_ptr<SavedBuffer> buffer = pass.buffers[id].lock();
    const bool kept = buffer != nullptr && layout.may_offload[id] &&
                      buffer->action == ActionKind::kKeep && buffer->on_device() &&
                      Bytes(buffer->bytes) >= core_.options_.small;
    if (kept && buffer->storage.use_count() > 1) {
      first = false;  // Moving what others hold would free nothing now.
      continue;
    }
    if (first) pass.next_kept = id + 1;
    if (!kept) continue;
    core_.digest_saved(*buffer);
    buffer->action = ActionKind::kOffload;
    return buffer;
  }
  return nullptr;
}

void TorchPort::evicted(SavedBuffer& buffer, bool gone) {
  if (!gone) {
    buffer.action = ActionKind::kKeep;
  } else if (!core_.task_.verifies()) {
    core_.count_fallback(
        "activation larger than profiled: a buffer planned to stay on the device was offloaded");
  }
}

void TorchPort::flush() { core_.engine_->flush(); }

}  // namespace spillway
