#include <algorithm>
#include <ranges>
#include <utility>

#include "spillway/core/error.hpp"
#include "torch/execute/session_core.hpp"

namespace spillway {

at::Tensor SessionCore::unpack(SavedBuffer& buffer, const TensorWindow& window) {
  window.require_unmodified();
  if (!in_its_process()) {
    throw InvalidArgument(
        "unpack",
        "this tensor was saved before fork(), by a session of the parent process, "
        "and the child has none of its threads; run the forward pass in the "
        "process that runs its backward pass");
  }
  if (device_->is_capturing()) return unpack_captured(buffer, window);
  const ComputePause compute_pause(*this);
  std::unique_lock lock(mutex_);
  // From here on memory must be free when its last holder in the program lets it go.
  if (!copies_.sources().empty()) digest_sources(lock, copies_.sources().take_all());
  Pass& pass = *buffer.pass;
  if (!pass.backward_begun) begin_backward(pass);
  note_moment(pass, MomentKind::kUnpack, static_cast<int>(pass.unpacks), buffer.id);
  ++pass.unpacks;
  compare_with_owners();
  if (pass.profiler != nullptr) {
    pass.profiler->unpacked(buffer.id);
    watch_.unpacked(pass, buffer.id, mutex_);
  }
  shards_.begin_due(pass, buffer.id);
  if (buffer.verify || buffer.action == ActionKind::kRecompute) {
    lock.unlock();
    return recompute(buffer, window);
  }
  regions_.read(buffer);
  machine_.make_available(buffer);
  prefetch(pass, buffer.id);
  return window.on(buffer.storage);
}

void SessionCore::unpack_caller_owned(Pass& pass, int id) {
  if (!in_its_process() || device_->is_capturing()) return;
  const ComputePause compute_pause(*this);
  const std::lock_guard lock(mutex_);
  if (!pass.backward_begun) begin_backward(pass);
  note_moment(pass, MomentKind::kUnpack, static_cast<int>(pass.unpacks), id);
  ++pass.unpacks;
  compare_with_owners();
  if (pass.profiler != nullptr) pass.profiler->unpacked(id);
  shards_.begin_due(pass, id);
  prefetch(pass, id);
}

void SessionCore::begin_backward(Pass& pass) {
  for (const CallId call : std::views::reverse(running_calls_)) {
    if (book_->call(call).pass == pass.number) {
      note_call(pass, MomentKind::kCallEnds, book_->call(call).number);
    }
  }
  sharding_.close_forward();
  regions_.begin_backward(pass);
  pass.backward_begun = true;
  backward_order_.push_back(pass.key);
  if (in_step() && !passes_.empty() && static_cast<std::size_t>(pass.number) < passes_.size() &&
      passes_[static_cast<std::size_t>(pass.number)].get() == &pass) {
    order_.emplace_back(passes_[static_cast<std::size_t>(pass.number)], true);
    follow(pass, true);
    if (!task_.records() && idle_chunks_.erase(pass.key.chunk) > 0) note_unrecorded_chunk();
  }
  note_moment(pass, MomentKind::kBackwardBegins, -1);
  look_for_freed_weights(pass, FreedWeights::At::kBackwardBegins);
  if (pass.profiler != nullptr) pass.profiler->begin_backward(*pass.book, regions_.is_cutting());
  // Layers that were skipped had their own anchors.
  if (pass.as_profiled() && pass.book != nullptr &&
      pass.anchors_found < pass.layout->anchors.size()) {
    count_fallback("an anchor was not found");
  }
  expect_replays(pass);
  machine_.begin_backward(pass);
  shards_.begin_backward(pass);
  for (const ValueId anchor : std::exchange(pass.anchors, {})) release_root(anchor, *pass.book);
}

void SessionCore::prefetch(Pass& pass, int id) {
  std::size_t unpack = pass.unpacks - 1;
  // A pass that skipped sites does not unpack them.
  if (pass.residency != nullptr && !pass.as_profiled()) {
    const std::vector<int>& order = pass.layout->residency.unpack_order;
    const auto next = order.begin() + static_cast<std::ptrdiff_t>(pass.next_unpack);
    const auto found = std::find(next, order.end(), id);
    if (found != order.end()) {
      pass.next_unpack = static_cast<std::size_t>(found - order.begin());
    }
    unpack = pass.next_unpack;
  }
  machine_.prefetch(pass, unpack);
}

void SessionCore::drop(std::shared_ptr<SavedBuffer> buffer, int id) noexcept {
  if (!in_its_process()) return leak(std::move(buffer));
  const bool captures = device_->is_capturing();
  const ComputePause compute_pause(*this);
  const std::lock_guard lock(mutex_);
  try {
    if (captures) return void(deferred_drops_.emplace_back(std::move(buffer), id));
    drop_deferred();
    if (id >= 0) note_gone(*buffer->pass, id);
    drop_locked(std::move(buffer));
  } catch (...) {
    note_failure("dropping a saved tensor");  // A failed device tells whoever uses it next.
  }
}

void SessionCore::drop_kept(const std::shared_ptr<Pass>& pass, int id, at::Tensor tensor) noexcept {
  const ComputePause compute_pause(*this);
  {
    const std::lock_guard lock(mutex_);
    try {
      note_gone(*pass, id);
    } catch (...) {
      note_failure("dropping a saved tensor");
    }
  }
  tensor.reset();
}

void SessionCore::drop_locked(BufferRef buffer) {
  if (buffer == nullptr || buffer.use_count() > 1) return;
  if (!buffer->anchor) saved_ -= buffer->bytes;
  kept_bytes_ -= buffer->kept_bytes;
  (void)machine_.drop(*buffer);
  if (const auto shard = std::exchange(buffer->shard, nullptr)) {
    shards_.drop(*shard, buffer->pass->over);
  }
  if (buffer->on_device()) streams_.order_before_free(*buffer);
  if (buffer->ticket) {
    const auto end = [&] {
      buffer->ticket = Ticket();
      device_->catch_up(*buffer->stream);
    };
    if (buffer->ticket.released() || buffer->ticket.reloading()) {
      end();
    } else {
      log_.wait(WaitCause::kInPlace, *buffer->stream, end);
    }
  }
  if (buffer->value >= 0) detach_from_book(*buffer);
  if (buffer->compared) mutex_.free_outside(std::exchange(buffer->compared, c10::Storage()));
  mutex_.free_outside(std::exchange(buffer->storage, c10::Storage()));
}

}  // namespace spillway
