// Memory whose owner frees or replaces it while the session relies on it: what is noted for later
// steps, and what a replay does that finds it.
#include <algorithm>
#include <exception>
#include <utility>

#include "spillway/core/error.hpp"
#include "torch/execute/recipe.hpp"
#include "torch/execute/session_core.hpp"

namespace spillway {
namespace {

constexpr const char* kMoved = "its owner freed or replaced its memory";

}  // namespace

void SessionCore::note_moved(RecipeBook& book, ValueId id) {
  // Addresses differ between ranks; which collectives they repeat must not.
  if (book.repeats_collectives()) return;
  Value& value = book.value(id);
  if (value.fixed || value.of_weights) return;  // What reads a weight finds its memory.
  value.owned_elsewhere = true;
  if (value.maker >= 0) moved_roots_.add(value.signature);
}

void SessionCore::note_known_movers(const Call& call) {
  if (moved_roots_.empty() || book_->repeats_collectives()) return;
  for (const Made& made : call.makes) {
    Value& value = book_->value(made.value);
    if (moved_roots_.contains(value.signature)) value.owned_elsewhere = true;
  }
}

void SessionCore::note_moved_while_recording() {
  if (!task_.records()) return;
  for (const auto& [pass, id] : watch_.take_moved()) {
    pass->profiler->fix(id, FixedReason::kOwnedElsewhere);
    if (const ValueId value = pass->profiler->value_of(id); value >= 0) {
      note_moved(*pass->book, value);
    }
  }
}

void SessionCore::never_move(Pass& pass, int id, const std::string& reason) {
  if (id < 0 || pass.over) return;
  if (pass.profiler != nullptr) {
    pass.profiler->fix(id, FixedReason::kOwnedElsewhere);
  } else {
    never_moved_.find({pass.key.chunk, id}, reason);
  }
}

void SessionCore::return_to_owner(SavedBuffer& buffer) {
  count_fallback("the owner of a saved tensor freed or replaced its memory: left to it");
  if (buffer.ticket) {
    buffer.ticket = Ticket();  // Of what may be other content.
    device_->catch_up(*buffer.stream);
  }
  buffer.memory_hold = MemoryHold();
  buffer.checked.clear();
  buffer.action = ActionKind::kKeep;
  machine_.keep(buffer);
  if (buffer.value >= 0) note_moved(*buffer.pass->book, buffer.value);
  never_move(*buffer.pass, buffer.id, kMoved);
}

bool SessionCore::is_moved(const Value& value) {
  if (value.copied) return false;
  if (!value.root_storage) {
    const BufferRef buffer = value.root_buffer != nullptr ? value.root_buffer : value.buffer.lock();
    const bool reloaded = buffer != nullptr && buffer->on_device() &&
                          !value.pin.is(buffer->storage.unsafeGetStorageImpl());
    if (reloaded) return false;
  }
  auto alive = value.pin.lock();
  if (!alive) return false;
  const bool moved = has_moved(value, *alive);
  mutex_.free_outside(c10::Storage(std::move(alive)));
  return moved;
}

void SessionCore::find_calls(SavedBuffer& buffer, Replay::Job& job) {
  RecipeBook& book = *buffer.pass->book;
  do {
    job.calls = calls_to_repeat(book, buffer.value,
                                [&](ValueId id) { return is_available(book.value(id)); });
  } while (find_moved(book, job));
  // Roots of its recipe that have moved since it was found. What moved before is no root.
  for (const ValueId id : buffer.roots) {
    const Value& value = book.value(id);
    const bool recomputed = value.owned_elsewhere && !value.recomputed && !value.copied &&
                            std::ranges::binary_search(job.calls, value.maker);
    if (recomputed) job.moved.push_back(id);
  }
  if (!job.moved.empty()) require_repeatable(buffer, book, job);
}

bool SessionCore::find_moved(RecipeBook& book, const Replay::Job& job) {
  if (book.repeats_collectives()) return false;
  bool found = false;
  for (const CallId id : job.calls) {
    for (const TensorArgument& argument : book.call(id).tensors) {
      const Value& value = book.value(argument.value);
      const bool is_root = value.maker >= 0 && !value.owned_elsewhere && !value.recomputed &&
                           !value.fixed && !value.of_weights &&
                           !std::ranges::binary_search(job.calls, value.maker);
      if (!is_root || !is_moved(value)) continue;
      note_moved(book, argument.value);
      if (const BufferRef buffer = value.buffer.lock()) {
        never_move(*buffer->pass, buffer->id, kMoved);
      }
      found = true;
    }
  }
  return found;
}

void SessionCore::require_repeatable(const SavedBuffer& buffer, const RecipeBook& book,
                                     const Replay::Job& job) {
  const auto may_repeat = [&](CallId id) {
    const Call& call = book.call(id);
    // Other ranks would not repeat it with this one.
    return call.ended && call.no_replay.empty() && !call.traits->collective;
  };
  // After the end of its step nothing would tell that the owner put back something else.
  if (!buffer.pass->over && std::ranges::all_of(job.calls, may_repeat)) {
    count_fallback(
        "the owner of memory that recomputation starts from freed or replaced it: what it held was "
        "recomputed, too, and compared with what its owner put back");
    return;
  }
  lose_root(buffer, job.moved.front());
}

void SessionCore::require_unmoved(const SavedBuffer& wanted, ValueId value) {
  const Value& read = wanted.pass->book->value(value);
  if (!is_moved(read)) return;
  if (const BufferRef buffer = read.buffer.lock()) never_move(*buffer->pass, buffer->id, kMoved);
  lose_root(wanted, value);
}

void SessionCore::lose_root(const SavedBuffer& wanted, ValueId root) {
  const auto lose = [&](const SavedBuffer& buffer) {
    if (buffer.recipe != 0) recipes_.lose_root(buffer.recipe);
  };
  lose(wanted);
  for (const auto& pass : passes_) {
    if (pass->book != wanted.pass->book) continue;
    for (const WeakBuffer& each : pass->buffers) {
      const BufferRef buffer = each.lock();
      if (buffer && std::ranges::find(buffer->roots, root) != buffer->roots.end()) lose(*buffer);
    }
  }
  TORCH_CHECK(false, "[recompute] a tensor of ", wanted.pass->book->value(root).bytes,
              " bytes that recomputation starts from was freed or replaced by its owner; keep or "
              "offload what is recomputed from it by a rule");
}

void SessionCore::expect_as_put_back(const RecipeBook& book, const Replay::Job& job) {
  for (const ValueId id : job.moved) {
    const Value& value = book.value(id);
    MovedRoots::Recomputed recomputed{value.pin, value.recomputed, {}};
    for (const CallId call : job.calls) {
      for (const TensorArgument& argument : book.call(call).tensors) {
        if (argument.value != id || !value.recomputed) continue;
        recomputed.read.push_back(argument.window.on(value.recomputed));
      }
    }
    moved_roots_.expect_equal(std::move(recomputed));
  }
  compare_with_owners();
}

void SessionCore::compare_with_owners() {
  std::vector<c10::Storage> compared = moved_roots_.compare_present();
  if (compared.empty()) return;
  copies_.note_stream(device_->current_stream());
  free_outside(std::move(compared));
}

void SessionCore::report_moved_roots() {
  const std::size_t different = moved_roots_.count_different(std::uncaught_exceptions() > 0);
  if (different == 0 || step_error_ != nullptr) return;
  count_fallback("memory that recomputation started from came back with other bits");
  step_error_ = std::make_exception_ptr(VerificationError(
      "verify",
      "step " + std::to_string(controller_.steps()) + ": the owners of " +
          std::to_string(different) +
          " tensors that recomputation starts from freed them after forward, and did not put the "
          "same bits back before backward, so the gradients of this step may be wrong: discard "
          "them (zero_grad) and repeat the batch. Nothing is recomputed from these tensors from "
          "now on."));
}

}  // namespace spillway
