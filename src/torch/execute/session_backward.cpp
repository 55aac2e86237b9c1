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
  const ClockPause clock_pause(*this);
  std::unique_lock lock(mutex_);
  // From here on memory must be free when its last holder in the program lets it go.
  if (!copy_sources_.empty()) digest_sources(lock, copy_sources_.take_all());
  Pass& pass = *buffer.pass;
  if (!pass.backward_begun) begin_backward(pass);
  if (pass.moments != nullptr) {
    clock_.moment(pass.moments, MomentKind::kUnpack, static_cast<int>(pass.unpacks));
    if (tracing_ != nullptr) tracing_->unpacked(pass, buffer.id);
  }
  ++pass.unpacks;
  if (pass.profiler != nullptr) {
    pass.profiler->unpacked(buffer.id);
    watch_.unpacked(pass, buffer.id, mutex_);
  }
  begin_due_gathers(pass, buffer.id);
  if (buffer.verify || buffer.action == ActionKind::kRecompute) {
    lock.unlock();
    return recompute(buffer, window);
  }
  ensure_on_device(buffer);
  prefetch(pass);
  return window.on(buffer.storage);
}

void SessionCore::unpack_caller_owned(Pass& pass, int id) {
  if (!in_its_process() || device_->is_capturing()) return;
  const ClockPause clock_pause(*this);
  const std::lock_guard lock(mutex_);
  if (!pass.backward_begun) begin_backward(pass);
  if (pass.moments != nullptr) {
    clock_.moment(pass.moments, MomentKind::kUnpack, static_cast<int>(pass.unpacks));
    if (tracing_ != nullptr) tracing_->unpacked(pass, id);
  }
  ++pass.unpacks;
  if (pass.profiler != nullptr) pass.profiler->unpacked(id);
  prefetch(pass);
}

void SessionCore::begin_backward(Pass& pass) {
  for (const CallId call : std::views::reverse(running_calls_)) {
    if (book_->call(call).pass == pass.number) {
      note_call(pass, MomentKind::kCallEnds, book_->call(call).number);
    }
  }
  close_forward();
  pass.backward_begun = true;
  note_skipped(pass);
  backward_order_.push_back(pass.key);
  if (in_step() && !passes_.empty() && static_cast<std::size_t>(pass.number) < passes_.size() &&
      passes_[static_cast<std::size_t>(pass.number)].get() == &pass) {
    order_.emplace_back(passes_[static_cast<std::size_t>(pass.number)], true);
    follow(pass, true);
    if (!recording_ && idle_chunks_.erase(pass.key.chunk) > 0) note_unrecorded_chunk();
  }
  if (pass.moments != nullptr) clock_.moment(pass.moments, MomentKind::kBackwardBegins, -1);
  look_for_freed_weights(pass, FreedWeights::At::kBackwardBegins);
  if (pass.profiler != nullptr) pass.profiler->begin_backward(*pass.book);
  if (!passes_.empty() && passes_.back().get() == &pass) remember_tail(pass);
  // Layers that were skipped had their own anchors.
  if (pass.as_profiled() && pass.book != nullptr &&
      pass.anchors_found < pass.layout->anchors.size()) {
    count_fallback("an anchor was not found");
  }
  expect_replays(pass);
  queue_reloads(pass);
  release_parts_of_others(pass);
  begin_first_gather(pass);
  prefetch_gathers(pass);
  for (const ValueId anchor : std::exchange(pass.anchors, {})) release_root(anchor, *pass.book);
}

void SessionCore::remember_tail(const Pass& pass) {
  if (!pass.as_profiled()) return;
  PassTail tail;
  for (const WeakBuffer& each : pass.buffers) {
    const BufferRef buffer = each.lock();
    if (buffer == nullptr || !buffer->in_window || buffer->number >= tail.first) continue;
    tail = {buffer->number, buffer->before};
  }
  if (tail.first != PassTail().first) tails_.emplace_back(pass.key, tail);
}

void SessionCore::queue_reloads(Pass& pass) {
  if (pass.reloads_queued) return;
  pass.reloads_queued = true;
  const auto queue = [this](const WeakBuffer& each) {
    const BufferRef buffer = each.lock();
    if (buffer == nullptr) return;
    if (buffer->in_window) {
      // Its backward begins before its release: it is used in place.
      take_from_window(buffer);
      if (!buffer->ticket) {
        ++step_.offloads_skipped.buffers;
        step_.offloads_skipped.bytes += Bytes(buffer->bytes);
      }
      return;
    }
    if (!buffer->ticket) return;
    const Bytes bytes(handed_out(buffer->bytes));
    reload_window_.append({each, bytes}, bytes);
  };
  if (pass.layout != nullptr) {
    for (const int id : pass.layout->reload_order)
      queue(pass.buffers[static_cast<std::size_t>(id)]);
    std::for_each(pass.extra.rbegin(), pass.extra.rend(), queue);
  } else {
    // The order is unknown yet; the last saved is mostly the first read.
    std::for_each(pass.buffers.rbegin(), pass.buffers.rend(), queue);
  }
}

void SessionCore::take_from_window(const BufferRef& buffer) {
  (void)out_window_.take([&](const WeakBuffer& other) {
    return !other.owner_before(buffer) && !buffer.owner_before(other);
  });
  buffer->in_window = false;
}

void SessionCore::queue_next_pass() {
  const std::optional<PassKey> next = next_backward();
  if (!next) return;
  for (const auto& pass : passes_) {
    if (pass->key == *next && !pass->backward_begun) queue_reloads(*pass);
  }
}

void SessionCore::ensure_on_device(SavedBuffer& buffer) {
  if (!buffer.on_device() && buffer.shard != nullptr) {
    all_gather_buffer(buffer);
    adopt_instead(buffer);
  } else if (!buffer.on_device()) {
    if (!adopt_if_alive(buffer)) {
      ++step_.late_reloads;
      start_reload(buffer);
    }
  } else if (buffer.ticket && !buffer.reloading && !buffer.ready) {
    ++step_.used_in_place;
    buffer.ready = true;
    // Others still hold it, so moving it frees nothing.
    if (buffer.storage.use_count() > 1) note_held(buffer);
  }
  Stream& stream = device_->current_stream();
  if (buffer.reloading && is_new_reader(buffer, stream)) {
    clock_.uses_stream();
    waits_.time(WaitCause::kReload, stream, [&] {
      engine_->ready(buffer.ticket, stream);
      device_->catch_up(stream);
    });
    if (!buffer.ready && buffer.digest >= 0) check_copy(buffer);
    buffer.ready = true;
  }
}

bool SessionCore::adopt_if_alive(SavedBuffer& buffer) {
  const auto alive = buffer.original.lock();
  if (!alive) return false;
  // Autograd would have held this storage and read what it has now, whoever wrote that, and
  // wherever its owner put it.
  const bool moved = !buffer.has_saved_memory(*alive);
  buffer.storage = c10::Storage(alive);
  count_allocated(buffer.bytes);
  ++step_.used_in_place;
  buffer.ready = true;
  if (moved) {
    return_to_owner(buffer);
  } else {
    note_held(buffer);
  }
  return true;
}

void SessionCore::adopt_instead(SavedBuffer& buffer) {
  const auto alive = buffer.original.lock();  // Until it is adopted.
  if (!alive) return;
  count_freed(buffer.bytes);
  mutex_.free_outside(std::exchange(buffer.storage, c10::Storage()));
  (void)adopt_if_alive(buffer);
}

void SessionCore::note_held(SavedBuffer& buffer) {
  const Pass& pass = *buffer.pass;
  if (pass.profiler == nullptr) return;
  // A thread of a backend may release it sooner on one rank than on another. What is planned must
  // not depend on that: ranks that repeat collectives together would repeat different ones.
  if (buffer.value >= 0 && pass.book->value(buffer.value).communicated) return;
  pass.profiler->fix(buffer.id, FixedReason::kCallerOwned);
}

std::optional<SessionCore::ReloadItem> SessionCore::next_reload(const Pass& pass) {
  if (pass.layout == nullptr || pass.layout->backward_allowance.empty()) {
    return reload_window_.next();
  }
  const std::vector<std::size_t>& allowances = pass.layout->backward_allowance;
  // A graph that is kept for a second backward unpacks more often than profiled. A pass that
  // skipped sites does not unpack them: it is at one of so many positions.
  const std::size_t last = allowances.size() - 1;
  const std::size_t first = std::min(pass.unpacks - 1, last);
  const auto begin = allowances.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end =
      allowances.begin() + static_cast<std::ptrdiff_t>(std::min(first + pass.skipped, last) + 1);
  const std::size_t allowance = allowed_in(pass, *std::min_element(begin, end));
  const Bytes room(allowance - std::min(allowance, on_device_));
  return plan_->max_prefetch ? reload_window_.next_of(room) : reload_window_.next_within(room);
}

void SessionCore::prefetch(const Pass& pass) {
  bool any = false;
  const auto start_all = [&] {
    while (const std::optional<ReloadItem> next = next_reload(pass)) {
      const BufferRef buffer = next->buffer.lock();
      if (buffer == nullptr || buffer->on_device() || adopt_if_alive(*buffer)) {
        reload_window_.finished(next->bytes);
        continue;
      }
      try {
        start_reload(*buffer);
      } catch (const c10::OutOfMemoryError&) {
        // Backward does not need it yet; when it does, something else may be gone.
        reload_window_.finished(next->bytes);
        count_fallback("no device memory to prefetch a buffer: reloaded when it was needed");
        return;
      }
      buffer->prefetched = true;
      any = true;
    }
  };
  start_all();
  if (reload_window_.waiting() == 0) {
    queue_next_pass();
    start_all();
  }
  if (any) engine_->flush();
}

void SessionCore::start_reload(SavedBuffer& buffer) {
  // Memory of the stream that runs: of any other one's it is unknown who still reads it.
  Stream& stream = device_->current_stream();
  c10::Storage storage = device_->allocate(buffer.bytes, stream);
  auto* const data = static_cast<std::byte*>(storage.mutable_data());
  engine_->reload(buffer.ticket, {data, buffer.bytes}, stream);
  buffer.stream = &stream;
  buffer.storage = std::move(storage);
  count_allocated(buffer.bytes);
  buffer.reloading = true;
  buffer.readers.clear();
  step_.bytes_back += Bytes(buffer.bytes);
}

void SessionCore::drop(std::shared_ptr<SavedBuffer> buffer, int id) noexcept {
  if (!in_its_process()) return leak(std::move(buffer));
  const bool captures = device_->is_capturing();
  const ClockPause clock_pause(*this);
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
  const ClockPause clock_pause(*this);
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
  if (buffer->in_window) take_from_window(buffer);
  if (buffer->prefetched) reload_window_.finished(Bytes(handed_out(buffer->bytes)));
  if (!buffer->anchor) saved_ -= buffer->bytes;
  kept_bytes_ -= buffer->kept_bytes;
  if (buffer->shard != nullptr) detach_shard(*buffer);
  if (buffer->on_device()) {
    count_freed(buffer->bytes);
    order_before_free(*buffer);
  }
  if (buffer->ticket) {
    const auto end = [&] {
      buffer->ticket = Ticket();
      device_->catch_up(*buffer->stream);
    };
    if (buffer->ticket.released() || buffer->ticket.reloading()) {
      end();
    } else {
      clock_.uses_stream();
      waits_.time(WaitCause::kInPlace, *buffer->stream, end);
    }
  }
  if (buffer->value >= 0) detach_from_book(*buffer);
  if (buffer->compared) mutex_.free_outside(std::exchange(buffer->compared, c10::Storage()));
  mutex_.free_outside(std::exchange(buffer->storage, c10::Storage()));
}

}  // namespace spillway
