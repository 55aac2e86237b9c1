#include <algorithm>
#include <unordered_set>
#include <utility>

#include "torch/execute/recipe.hpp"
#include "torch/execute/session_core.hpp"
#include "torch/hooks/error_text.hpp"

namespace spillway {
namespace {

/// `storage` must hold what the calls read that are repeated, as far as can be seen.
void require_unchanged(const Value& value, const c10::Storage& storage) {
  if (value.copied || !value.pin.is(storage.unsafeGetStorageImpl())) return;
  TORCH_CHECK(
      value.unchanged(), "[recompute] a tensor of ", value.bytes,
      " bytes that recomputation starts from was written in place after it was used; keep or "
      "offload what is recomputed from it by a rule");
}

}  // namespace

void SessionCore::expect_replays(Pass& pass) {
  if (pass.book == nullptr) return;
  RecipeBook& book = *pass.book;
  for (const WeakBuffer& each : pass.buffers) {
    const BufferRef buffer = each.lock();
    if (!is_recomputed(buffer) || buffer->awaited) continue;
    Replay::expect(book, calls_to_repeat(book, buffer->value, [&](ValueId id) {
                     return is_available(book.value(id)) ||
                            is_recomputed(book.value(id).buffer.lock());
                   }));
  }
}

at::Tensor SessionCore::recompute(SavedBuffer& buffer, const TensorWindow& window) {
  const std::lock_guard replays(replay_mutex_);
  std::unique_lock lock(mutex_);
  StreamOrder::note(*buffer.pass, device_->current_stream());
  streams_.join(*buffer.pass);
  if (buffer.verify) return verify(lock, buffer, window);
  if (!buffer.on_device()) {
    // Who still holds a tensor may differ between ranks; which collectives they repeat must not.
    const bool on_all_ranks = buffer.pass->book->repeats_collectives();
    if (on_all_ranks || !machine_.try_adopt(buffer)) recompute_storage(lock, buffer);
    if (on_all_ranks) (void)port_.adopt(buffer);
  }
  prefetch(*buffer.pass, buffer.id);
  return window.on(buffer.storage);
}

at::Tensor SessionCore::verify(std::unique_lock<SessionMutex>& lock, SavedBuffer& buffer,
                               const TensorWindow& window) {
  if (buffer.compared) return window.on(buffer.compared);
  const Value& value = buffer.pass->book->value(buffer.value);
  machine_.make_available(buffer);
  const Verification::Key key{buffer.pass->key.chunk, buffer.id};
  std::set<Verification::Key> made_from = verified_inputs(buffer);
  try {
    if (!value.recomputed) recompute_storage(lock, buffer);
  } catch (const std::exception&) {
    // The saved buffer is used instead, so only the plan changes.
    if (!buffer.pass->book->incomplete().empty()) {
      controller_.verify_again();  // Nothing was shown about this buffer.
    } else if (!buffer.pass->over) {
      recipes_.mark_unrecomputable(key, text_of(std::current_exception()), std::move(made_from));
    }
    return window.on(buffer.storage);
  }
  prefetch(*buffer.pass, buffer.id);
  const c10::Storage original = buffer.storage;
  buffer.compared = value.recomputed;
  lock.unlock();
  std::vector<at::Tensor> differ;
  {
    const RecordingPause pause;
    for (const TensorWindow& each : buffer.windows) {
      differ.push_back(Verification::differs(each.on(original), each.on(buffer.compared)));
    }
    // Backward gets the original's bits in the memory that it gets in other steps: what it writes
    // there, later replays read, now as then.
    for (const TensorWindow& each : buffer.windows) {
      Verification::restore(each.on(buffer.compared), each.on(original));
    }
  }
  lock.lock();
  // The step may have ended, also on another thread; then its plan may be another one.
  if (!buffer.pass->over) {
    recipes_.add(key, buffer.recipe, std::move(differ), made_from);
  }
  return window.on(buffer.compared);
}

std::set<Verification::Key> SessionCore::verified_inputs(const SavedBuffer& buffer) const {
  const RecipeBook& book = *buffer.pass->book;
  const std::vector<CallId> calls = calls_to_repeat(book, buffer.value, [&](ValueId id) {
    const Value& value = book.value(id);
    return value.root_count > 0 || value.fixed || value.maker < 0;
  });
  std::set<Verification::Key> found;
  for (const CallId id : calls) {
    // Results of one call do not explain each other.
    if (id == book.value(buffer.value).maker) continue;
    for (const Made& made : book.call(id).makes) {
      const int other = book.value(made.value).verified_as;
      if (other >= 0) found.insert({buffer.pass->key.chunk, other});
    }
  }
  return found;
}

void SessionCore::recompute_storage(std::unique_lock<SessionMutex>& lock, SavedBuffer& buffer) {
  RecipeBook& book = *buffer.pass->book;
  TORCH_CHECK(
      book.incomplete().empty(),
      "[recompute] a tensor cannot be recomputed, because the operators of its forward pass "
      "are not all known (",
      book.incomplete(), "); repeat the step");
  const Replay::Job job = job_for(buffer);
  // A step that ends on another thread may turn fusion off.
  const std::shared_ptr<ChainRunner> chains = chains_;
  Replay replay(book, job, chains != nullptr);
  step_.repeated_calls += job.calls.size();
  if (!job.calls.empty()) machine_.replay(buffer);
  log_.uses_stream();
  const EventLog::Begun begun = log_.begin_work();
  replaying_ = true;
  lock.unlock();
  int fused = 0;
  try {
    fused = replay.run(chains.get());
  } catch (...) {
    lock.lock();
    replaying_ = false;
    streams_.join(*buffer.pass);
    free_outside(replay.finish(book));
    throw;
  }
  lock.lock();
  replaying_ = false;
  // What an earlier replay allocated on another stream may be freed now.
  streams_.join(*buffer.pass);
  free_outside(replay.finish(book));
  free_outside(Replay::trim(book, job, recompute_cache().count()));
  step_.fused_kernels += static_cast<std::uint64_t>(fused);
  log_.end_work(begun, StepLog::Work::Kind::kReplay, buffer.pass->number, buffer.id,
                Bytes(buffer.bytes));
  expect_as_put_back(book, job);
  commit(job, book, buffer);
}

Replay::Job SessionCore::job_for(SavedBuffer& buffer) {
  RecipeBook& book = *buffer.pass->book;
  Replay::Job job;
  find_calls(buffer, job);
  job.wanted.insert(buffer.value);
  job.wanted.insert(job.moved.begin(), job.moved.end());
  for (const CallId id : job.calls) {
    for (const Made& made : book.call(id).makes) {
      const BufferRef other = book.value(made.value).buffer.lock();
      if (is_recomputed(other) && (other->verify || !other->on_device()))
        job.wanted.insert(made.value);
    }
  }
  add_inputs(job, book);
  for (const auto& input : job.inputs) require_unmoved(buffer, input.first);
  return job;
}

void SessionCore::add_inputs(Replay::Job& job, const RecipeBook& book) {
  std::unordered_set<ValueId> made_here;
  for (const CallId id : job.calls) {
    for (const Made& made : book.call(id).makes) made_here.insert(made.value);
  }
  for (const CallId id : job.calls) {
    for (const TensorArgument& argument : book.call(id).tensors) {
      const Value& value = book.value(argument.value);
      if (made_here.contains(argument.value) || value.recomputed) continue;
      // A weight is found when it is read.
      if (argument.weight != nullptr && !argument.written && !value.copied) continue;
      if (job.inputs.contains(argument.value)) continue;
      job.inputs[argument.value] = storage_of(value);
    }
  }
}

Bytes SessionCore::recompute_cache() const {
  const Plan* const plan = current_.plan().get();
  const std::optional<Bytes> planned =
      plan != nullptr ? plan->limits.recompute_cache : options_.recompute_cache;
  return regions_.cache_limit(planned.value_or(kDefaultRecomputeCache));
}

c10::Storage SessionCore::storage_of(const Value& value) {
  c10::Storage storage = value.root_storage ? value.root_storage : value.held;
  if (!storage) {
    const BufferRef buffer = value.root_buffer != nullptr ? value.root_buffer : value.buffer.lock();
    if (is_stored(buffer)) machine_.make_available(*buffer);
    if (buffer != nullptr && buffer->on_device()) {
      (void)StreamOrder::is_new_reader(*buffer, device_->current_stream());
      storage = buffer->storage;
    } else if (auto alive = value.pin.lock()) {
      storage = c10::Storage(std::move(alive));
    }
  }
  if (!storage) return storage;
  require_unchanged(value, storage);
  return storage;
}

void SessionCore::free_outside(std::vector<c10::Storage> garbage) {
  for (c10::Storage& each : garbage) mutex_.free_outside(std::move(each));
}

void SessionCore::commit(const Replay::Job& job, RecipeBook& book, SavedBuffer& wanted) {
  std::vector<ValueId> made;  // In the order of the calls and their outputs.
  for (const CallId call : job.calls) {
    for (const Made& each : book.call(call).makes) {
      if (job.wanted.contains(each.value)) made.push_back(each.value);
    }
  }
  if (std::ranges::find(made, wanted.value) == made.end()) made.push_back(wanted.value);
  for (const ValueId id : made) {
    Value& value = book.value(id);
    // Of several buffers with one value the book knows the last.
    const BufferRef known = value.buffer.lock();
    SavedBuffer* const buffer = id == wanted.value ? &wanted : known.get();
    if (!value.recomputed) continue;
    // Another thread may have dropped the buffer meanwhile, or changed what it holds.
    const bool waits =
        buffer != nullptr && (buffer->verify || buffer->state == BufferState::kDiscarded);
    if (!waits) {
      if (value.readers_left == 0) mutex_.free_outside(std::exchange(value.recomputed, {}));
      continue;
    }
    step_.bytes_recomputed += Bytes(value.bytes);
    if (buffer->verify) continue;
    buffer->storage = std::exchange(value.recomputed, c10::Storage());
    buffer->stream = &device_->current_stream();
    buffer->readers = {buffer->stream};
    machine_.recomputed(*buffer);
    // It was compared when it was discarded, and others may have written into it since.
    if (buffer->is_checked()) check_copy(*buffer);
  }
}

void SessionCore::finish_verification() {
  std::vector<Verification::Failure> failures;
  try {
    failures = recipes_.read();
  } catch (const std::exception& error) {
    count_fallback(std::string("the verification results could not be read: ") + error.what());
    recipes_.forget_compared();
    controller_.verify_again();
    return;
  }
  if (chains_ != nullptr && step_.fused_kernels > 0 && !failures.empty()) {
    // Verifying again without fusion shows whether fusion was the cause.
    chains_.reset();
    recipes_.forget_compared();
    count_fallback("verification failed with fused replays: fusion is now off");
    controller_.verify_again();
    return;
  }
  const auto [demoted, again] = recipes_.note(failures, layouts_);
  if (again) controller_.verify_again();
  Plan plan = *current_.plan();
  bool changed = false;
  for (ChunkPlan& chunk : plan.chunks) {
    for (Decision& decision : chunk.decisions) {
      if (decision.action.kind != ActionKind::kRecompute) continue;
      const auto found = demoted.find({chunk.chunk, decision.buffer});
      if (found == demoted.end()) continue;
      changed = true;
      decision.action = {decision.fallback, false};
      decision.reason += ", but " + found->second;
      current_.note_demoted(decision.position.scope + " " + decision.position.saver + ": " +
                            found->second);
      count_fallback(found->second);
    }
  }
  if (!changed) return;
  current_.revise(std::move(plan));
  renew_lists();
}

}  // namespace spillway
