// What RegionRecorder does where a region ends.
#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>

#include "torch/execute/recipe.hpp"
#include "torch/execute/region_recorder.hpp"
#include "torch/execute/session_core.hpp"
#include "torch/graph/storage_copy.hpp"
#include "torch/replay/verification.hpp"

namespace spillway {
namespace {

/// Whether a replay that recomputes an original beside it may read the value without repeating it.
bool is_here(const Value& value) {
  if (value.recomputed || value.in_replay || value.held) return true;
  if (value.owned_elsewhere && value.maker >= 0 && !value.copied) return false;
  if (value.root_count > 0 || value.fixed || value.maker < 0) return true;
  const auto buffer = value.buffer.lock();
  return value.unchanged() && buffer != nullptr && buffer->state == BufferState::kResident;
}

std::vector<CallId> calls_beside(const RecipeBook& book, const SavedBuffer& buffer) {
  return calls_to_repeat(book, buffer.value, [&](ValueId id) { return is_here(book.value(id)); });
}

at::Tensor differ(const c10::Storage& a, const c10::Storage& b) {
  const at::NoGradGuard no_gradients;
  constexpr std::size_t kWord = sizeof(std::int64_t);
  const auto bits = [](const c10::Storage& storage) {
    const at::Tensor bytes = bytes_of(storage);
    return storage.nbytes() % kWord == 0 ? bytes.view(at::kLong) : bytes;
  };
  return Verification::differs(bits(a), bits(b));
}

}  // namespace

void RegionRecorder::end_region() {
  const std::lock_guard replays(core_.replay_mutex_);
  std::unique_lock lock(core_.mutex_);
  // Another thread may have ended the step.
  if (!core_.runs_here() || region_ == nullptr || region_->ending) return;
  const std::shared_ptr<Region> region = region_;
  region->ending = true;
  try {
    if (verifies_) {
      end_verified(lock, *region);
    } else {
      end(lock, *region);
    }
  } catch (...) {
    core_.note_failure("the end of a region");
  }
  release_inputs(core_, *region);
  if (region_ == region) region_.reset();
}

void RegionRecorder::end(std::unique_lock<SessionMutex>& lock, Region& region) {
  StreamOrder::note(*region.pass, core_.device_->current_stream());
  core_.streams_.join(*region.pass);
  core_.log_.uses_stream();
  std::vector<BufferRef> others;
  Candidates candidates = candidates_of(region, others);
  find_recipes(region, candidates);
  compare(lock, region, candidates);
  const auto failed = [](const Candidate& each) {
    return each.outcome == Candidate::Outcome::kFailed;
  };
  if (region.pass->over || !core_.runs_here()) {
    forget_recipes(region, candidates);
    for (Candidate& each : candidates) each.buffer->action = ActionKind::kKeep;
  } else {
    ++totals_.regions;
    if (std::ranges::any_of(candidates, failed)) {
      // What comes after them was compared as recomputed from them, so they are inputs now.
      forget_recipes(region, candidates);
      find_recipes(region, candidates);
    }
    std::vector<ValueId> roots = std::exchange(region.saved_again, {});
    for (Candidate& each : candidates) {
      if (each.outcome == Candidate::Outcome::kMatches) {
        roots.insert(roots.end(), each.buffer->roots.begin(), each.buffer->roots.end());
        discard(*each.buffer);
      } else {
        ++totals_.mismatched;
        others.push_back(each.buffer);
      }
    }
    for (const BufferRef& each : others) {
      each->action = ActionKind::kOffload;
      core_.start_offload(each);
    }
    for (const ValueId id : roots) {
      if (!is_root_.insert(id).second) continue;
      roots_.push_back(id);
      store_root(region, id);
    }
  }
  for (Candidate& each : candidates) core_.drop_locked(std::move(each.buffer));
  for (BufferRef& each : others) core_.drop_locked(std::move(each));
}

RegionRecorder::Candidates RegionRecorder::candidates_of(Region& region,
                                                         std::vector<BufferRef>& others) const {
  Candidates candidates;
  for (const std::weak_ptr<SavedBuffer>& each : std::exchange(region.buffers, {})) {
    BufferRef buffer = each.lock();
    const bool waits = buffer != nullptr && buffer->state == BufferState::kResident &&
                       buffer->action == ActionKind::kKeep && !is_changed(region, *buffer);
    if (!waits) {
      core_.drop_locked(std::move(buffer));
    } else if (may_recompute(region, *buffer)) {
      candidates.emplace_back().buffer = std::move(buffer);
    } else {
      others.push_back(std::move(buffer));
    }
  }
  // What one is made from comes before it.
  const auto maker = [&](const Candidate& each) {
    return region.pass->book->value(each.buffer->value).maker;
  };
  std::ranges::stable_sort(candidates, {}, maker);
  return candidates;
}

bool RegionRecorder::is_changed(const Region& region, const SavedBuffer& buffer) {
  // Autograd would raise an error, or read what it was changed into.
  return buffer.value >= 0 && !region.pass->book->value(buffer.value).unchanged();
}

bool RegionRecorder::may_recompute(const Region& region, const SavedBuffer& buffer) {
  const RecipeBook& book = *region.pass->book;
  if (buffer.value < 0 || !book.incomplete().empty()) return false;
  if (!buffer.has_saved_memory(*buffer.storage.unsafeGetStorageImpl())) return false;
  // Digests find later writes into what others hold, but not where some of its bytes are undefined.
  if (!buffer.covered && buffer.storage.use_count() > 1) return false;
  return book.value(buffer.value).maker >= region.first_call &&
         !region.is_input.contains(buffer.value);
}

void RegionRecorder::find_recipes(const Region& region, Candidates& candidates) {
  RecipeBook& book = *region.pass->book;
  const auto waits = [](const Candidate& each) {
    return each.outcome != Candidate::Outcome::kFailed;
  };
  for (Candidate& each : candidates) {
    each.buffer->action = waits(each) ? ActionKind::kRecompute : ActionKind::kKeep;
    each.buffer->awaited = waits(each);
  }
  for (Candidate& each : candidates) {
    if (!waits(each)) continue;
    SavedBuffer& buffer = *each.buffer;
    const Recipe recipe = find_recipe(book, buffer.value, core_.freed_weights_);
    buffer.awaited = false;
    if (!recipe || !recipe.freed_reads.empty() ||
        reads_unregistered(book, calls_beside(book, buffer))) {
      each.outcome = Candidate::Outcome::kFailed;
      buffer.action = ActionKind::kKeep;
      continue;
    }
    buffer.roots = recipe.roots;
    for (const ValueId root : buffer.roots) core_.hold_root(root, book);
  }
}

void RegionRecorder::forget_recipes(const Region& region, Candidates& candidates) {
  for (Candidate& each : candidates) {
    each.buffer->awaited = false;
    for (const ValueId root : std::exchange(each.buffer->roots, {})) {
      core_.release_root(root, *region.pass->book);
    }
  }
}

bool RegionRecorder::reads_unregistered(const RecipeBook& book,
                                        const std::vector<CallId>& calls) const {
  // Their owners may free them until backward, as those of FSDP do: it is not known yet.
  const auto is_unregistered = [&](const TensorArgument& argument) {
    return argument.weight != nullptr &&
           !core_.fixed_.find(book.value(argument.value).pin.address());
  };
  return std::ranges::any_of(calls, [&](CallId id) {
    return std::ranges::any_of(book.call(id).tensors, is_unregistered);
  });
}

void RegionRecorder::compare(std::unique_lock<SessionMutex>& lock, const Region& region,
                             Candidates& candidates) {
  const RecipeBook& book = *region.pass->book;
  const auto maker = [&](const Candidate& each) {
    return each.buffer->value < 0 ? -1 : book.value(each.buffer->value).maker;
  };
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& first = candidates[i];
    if (first.outcome != Candidate::Outcome::kUnknown || first.differs.defined()) continue;
    std::vector<std::size_t> wanted;  // What one call made is recomputed at once.
    for (std::size_t j = i; j < candidates.size() && maker(candidates[j]) == maker(first); ++j) {
      if (candidates[j].outcome == Candidate::Outcome::kUnknown) wanted.push_back(j);
    }
    recompute(lock, region, candidates, std::move(wanted));
    if (region.pass->over) return;
  }
  read_results(lock, candidates);
}

void RegionRecorder::recompute(std::unique_lock<SessionMutex>& lock, const Region& region,
                               Candidates& candidates, std::vector<std::size_t> wanted) {
  RecipeBook& book = *region.pass->book;
  const auto fail = [&] {
    for (const std::size_t i : wanted) candidates[i].outcome = Candidate::Outcome::kFailed;
  };
  Replay::Job job;
  try {
    job.calls = calls_beside(book, *candidates[wanted.front()].buffer);
    for (const std::size_t i : wanted) job.wanted.insert(candidates[i].buffer->value);
    core_.add_inputs(job, book);
    const auto moved = [&](const auto& input) { return core_.is_moved(book.value(input.first)); };
    if (std::ranges::any_of(job.inputs, moved)) return fail();
  } catch (const std::exception&) {
    return fail();  // An input was changed unseen.
  }
  // A plan's replays are verified with the kernels that they will have.
  const std::shared_ptr<ChainRunner> chains = region.verified ? core_.chains_ : nullptr;
  Replay replay(book, job, chains != nullptr);
  core_.replaying_ = true;
  lock.unlock();
  bool done = true;
  try {
    core_.step_.fused_kernels += static_cast<std::uint64_t>(replay.run(chains.get()));
  } catch (...) {
    done = false;  // It can be offloaded all the same.
  }
  lock.lock();
  core_.replaying_ = false;
  core_.streams_.join(*region.pass);
  core_.free_outside(replay.finish(book));
  std::vector<std::pair<c10::Storage, c10::Storage>> pairs;
  for (const std::size_t i : wanted) {
    const SavedBuffer& buffer = *candidates[i].buffer;
    pairs.emplace_back(buffer.storage, std::exchange(book.value(buffer.value).recomputed, {}));
    done = done && pairs.back().second;
  }
  core_.free_outside(Replay::trim(book, job, core_.recompute_cache().count()));
  std::vector<at::Tensor> results;
  lock.unlock();
  try {
    const RecordingPause pause;
    for (const auto& [original, again] : pairs) {
      if (done) results.push_back(differ(original, again));
    }
  } catch (...) {
    done = false;
  }
  pairs.clear();
  lock.lock();
  if (!done) return fail();
  for (std::size_t i = 0; i < wanted.size(); ++i) candidates[wanted[i]].differs = results[i];
}

void RegionRecorder::read_results(std::unique_lock<SessionMutex>& lock, Candidates& candidates) {
  std::vector<at::Tensor> flags;
  std::vector<Candidate*> compared;
  for (Candidate& each : candidates) {
    if (!each.differs.defined() || each.outcome != Candidate::Outcome::kUnknown) continue;
    flags.push_back(each.differs);
    compared.push_back(&each);
  }
  if (flags.empty()) return;
  at::Tensor differ;
  lock.unlock();
  try {
    const RecordingPause pause;
    const at::NoGradGuard no_gradients;
    differ = at::stack(flags).cpu();
  } catch (...) {
    differ = at::Tensor();  // Nothing is known to match then.
  }
  lock.lock();
  for (std::size_t i = 0; i < compared.size(); ++i) {
    const bool matches = differ.defined() && !differ.const_data_ptr<bool>()[i];
    compared[i]->outcome = matches ? Candidate::Outcome::kMatches : Candidate::Outcome::kFailed;
  }
}

void RegionRecorder::discard(SavedBuffer& buffer) {
  if (core_.task_.checks_copies && buffer.covered) {
    core_.digest_saved(buffer);
    if (buffer.storage.use_count() > 1) core_.copies_.sources().add(buffer.shared_from_this());
  }
  core_.streams_.keep_until_read(buffer, buffer.storage);
  core_.mutex_.free_outside(std::exchange(buffer.storage, c10::Storage()));
  core_.machine_.discard(buffer);
  ++totals_.discarded.buffers;
  totals_.discarded.bytes += Bytes(buffer.bytes);
}

void RegionRecorder::store_root(const Region& region, ValueId id) {
  Value& value = region.pass->book->value(id);
  if (value.root_count == 0 || value.fixed || value.kept || value.communicated) return;
  const BufferRef buffer = value.buffer.lock();
  const bool is_saved = buffer != nullptr && !buffer->anchor && !value.copied;
  if (is_saved && value.root_buffer == buffer && !buffer->on_device()) return;
  c10::Storage storage = value.root_storage;
  if (!storage && is_saved) storage = buffer->storage;
  if (!storage) return;  // An earlier region has stored it.
  if (value.root_buffer != nullptr && value.root_buffer->anchor) {
    return core_.mutex_.free_outside(std::exchange(value.root_storage, c10::Storage()));
  }
  std::size_t ours = value.root_storage ? 2 : 1;
  if (is_saved && buffer->storage.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) ++ours;
  if (core_.copies_.sources().holds(storage)) ++ours;
  const bool is_shared = storage.use_count() > ours;
  // What others hold they may free or replace: replays start from a copy of their own.
  if (is_saved && !is_shared && is_stored(buffer)) {
    core_.mutex_.free_outside(std::exchange(value.root_storage, c10::Storage()));
    value.root_buffer = buffer;
  } else if (is_saved && !is_shared && buffer->state == BufferState::kDiscarded) {
    restore(*buffer, value);
  } else if (Bytes(storage.nbytes()) >= core_.options_.small) {
    make_anchor(region, id, std::move(storage), is_shared);
  }
}

void RegionRecorder::restore(SavedBuffer& buffer, Value& value) {
  buffer.storage = std::exchange(value.root_storage, c10::Storage());
  core_.machine_.recomputed(buffer);
  for (const ValueId root : std::exchange(buffer.roots, {})) {
    core_.release_root(root, *buffer.pass->book);
  }
  buffer.action = ActionKind::kOffload;
  value.root_buffer = buffer.shared_from_this();
  core_.start_offload(value.root_buffer);
  --totals_.discarded.buffers;
  totals_.discarded.bytes -= Bytes(buffer.bytes);
}

void RegionRecorder::make_anchor(const Region& region, ValueId id, c10::Storage storage,
                                 bool is_shared) {
  Value& value = region.pass->book->value(id);
  const BufferRef anchor = core_.new_buffer(*region.pass, -1, std::move(storage), value.counter);
  anchor->anchor = true;
  anchor->signature = value.signature;
  anchor->action = ActionKind::kOffload;
  anchor->value = id;
  anchor->original = StoragePin();  // The program may write into it.
  if (!value.copied && value.buffer.expired()) value.buffer = anchor;
  core_.drop_locked(std::exchange(value.root_buffer, anchor));
  core_.mutex_.free_outside(std::exchange(value.root_storage, c10::Storage()));
  if (is_shared) {
    (void)core_.machine_.evict(*anchor);
  } else {
    core_.machine_.offload(*anchor, anchor);
  }
}

}  // namespace spillway
