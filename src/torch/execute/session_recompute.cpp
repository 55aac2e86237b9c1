#include <algorithm>
#include <utility>

#include "spillway/torch/scope.hpp"
#include "torch/execute/recipe.hpp"
#include "torch/execute/session_core.hpp"
#include "torch/graph/storage_copy.hpp"
#include "torch/hooks/error_text.hpp"
#include "torch/replay/collective_results.hpp"

namespace spillway {

const std::string& SessionCore::running_operator() const {
  static const std::string kNone;
  return running_calls_.empty() ? kNone : book_->call(running_calls_.back()).traits->name;
}

int SessionCore::call_begins(const OperatorTraits& traits,
                             c10::ArrayRef<const c10::IValue> inputs) {
  if (device_->is_capturing()) return -1;
  const ComputePause compute_pause(*this);
  const std::string scope = Scope::current();  // Not under the lock: it may take an interpreter.
  std::unique_lock lock(mutex_);
  digest_sources(lock, copies_.sources().take_unshared());  // Before the operator allocates.
  if (!runs_here()) return -1;
  if (regions_.is_over(scope, inputs)) {
    lock.unlock();
    regions_.end_region();
    lock.lock();
    if (!runs_here()) return -1;
  }
  Pass& pass = current_pass();
  StreamOrder::note(pass, device_->current_stream());
  const bool forward = !pass.backward_begun && !backward_announced_;
  if (forward) collectives_.note(traits, inputs);
  const CallId id = book_->begin(traits, inputs, pass.number, pass.next_call++);
  count_call(pass, book_->call(id));
  if (forward) regions_.call_begins(id, scope);
  if (traits.writes_any) {
    if (!await_replay(lock, id)) return -1;
    copy_before_write(book_->call(id));
  }
  running_calls_.push_back(id);
  if (task_.records()) call_locations_.push_back({scope, forward});
  note_call(pass, MomentKind::kCallBegins, book_->call(id).number, log_.name(scope, traits.name));
  return id;
}

void SessionCore::call_failed(const char* name, const std::exception_ptr& error) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (book_ == nullptr) return;
    book_->mark_incomplete({});
    const std::string reason = std::string(name) + ": " + text_of(error);
    count_fallback("an operator could not be recorded: " + reason);
    book_->mark_incomplete(reason);
  } catch (...) {
    return;  // Out of memory for a message: the book is incomplete all the same.
  }
}

void SessionCore::count_call(Pass& pass, Call& call) const {
  const bool inside =
      std::any_of(call.tensors.begin(), call.tensors.end(), [&](const TensorArgument& argument) {
        const CallId maker = book_->value(argument.value).maker;
        return maker >= 0 && book_->call(maker).pass == pass.number;
      });
  std::vector<CallCount>& counts = pass.calls_since_save;
  auto found = std::find_if(counts.begin(), counts.end(),
                            [&](const CallCount& each) { return each.traits == call.traits; });
  if (found == counts.end()) found = counts.insert(counts.end(), {call.traits, 0, 0});
  call.saves = static_cast<int>(pass.next_site);
  call.ordinal = inside ? found->inside++ : -++found->outside;
}

void SessionCore::call_ended(int call, const std::vector<c10::IValue>& outputs) {
  if (device_->is_capturing()) return;
  const ComputePause compute_pause(*this);
  const std::lock_guard lock(mutex_);
  if (!runs_here()) return;
  note_call(*passes_[static_cast<std::size_t>(book_->call(call).pass)], MomentKind::kCallEnds,
            book_->call(call).number);
  while (!running_calls_.empty() && running_calls_.back() >= call) running_calls_.pop_back();
  book_->end(call, outputs);
  const Call& ended = book_->call(call);
  note_known_movers(ended);
  if (ended.traits->writes_any) keep_if_changed(ended);
  regions_.call_ended(ended);
  make_anchors(ended);
  if (waits_for_results(*ended.traits)) offload_completed(ended);
  settle_awaited();
}

bool SessionCore::await_replay(std::unique_lock<SessionMutex>& lock, CallId call) {
  const auto writes_root = [&](const TensorArgument& argument) {
    const Value& value = book_->value(argument.value);
    return argument.written && value.root_count > 0 && !value.copied;
  };
  while (replaying_ && std::ranges::any_of(book_->call(call).tensors, writes_root)) {
    lock.unlock();
    { const std::lock_guard until_it_ends(replay_mutex_); }
    lock.lock();
    if (!runs_here()) return false;
  }
  return true;
}

void SessionCore::copy_before_write(const Call& call) {
  for (const TensorArgument& argument : call.tensors) {
    Value& value = book_->value(argument.value);
    if (!argument.written || value.root_count == 0 || value.copied) continue;
    const auto alive = value.pin.lock();
    if (!alive) continue;
    if (has_moved(value, *alive)) {
      note_moved(*book_, argument.value);  // It may hold something else already.
      continue;
    }
    const BufferRef& root = value.root_buffer;
    if (root != nullptr && root->has_own_copy() && !value.root_storage) {
      value.copied = true;
      continue;
    }
    // Replays start from its value before the write. Copying may fail: then nothing has changed.
    c10::Storage before = copy_of(c10::Storage(alive));
    value.copied = true;
    mutex_.free_outside(std::exchange(value.root_storage, std::move(before)));
    drop_locked(std::exchange(value.root_buffer, nullptr));
  }
}

void SessionCore::keep_if_changed(const Call& call) {
  for (const TensorArgument& argument : call.tensors) {
    const Value& value = book_->value(argument.value);
    const BufferRef buffer = argument.written ? value.buffer.lock() : nullptr;
    // If autograd can see the change it raises an error itself.
    if (buffer == nullptr || buffer->counter.current_version() != buffer->version) continue;
    const auto alive = value.pin.lock();
    if (!alive) continue;
    count_fallback("a saved buffer was modified unseen by autograd: kept");
    if (const auto shard = std::exchange(buffer->shard, nullptr)) {
      shards_.drop(*shard, buffer->pass->over);
    }
    machine_.keep(*buffer);
    buffer->storage = c10::Storage(alive);
    if (buffer->ticket) {
      buffer->ticket = Ticket();
      device_->catch_up(*buffer->stream);
    }
    buffer->memory_hold = MemoryHold();
    buffer->checked.clear();
    buffer->action = ActionKind::kKeep;
    buffer->verify = false;
    buffer->awaited = false;
    if (buffer->signature != 0) never_moved_.add(buffer->pass->key.chunk, buffer->signature);
    if (buffer->pass->profiler != nullptr && buffer->id >= 0) {
      buffer->pass->profiler->fix(buffer->id, FixedReason::kChangedLater);
    } else if (task_.checks_copies) {
      // Other steps of a plan that only offloads record no operators, and do not see it.
      never_move(*buffer->pass, buffer->id, "it was modified unseen by autograd");
    }
  }
}

void SessionCore::make_anchors(const Call& call) {
  Pass& pass = *passes_[static_cast<std::size_t>(call.pass)];
  if (pass.layout == nullptr || pass.saves == 0) return;
  for (const auto& [key, anchor] : pass.layout->anchor_calls.find(pass.key_of(call))) {
    make_anchor(pass, call, static_cast<std::size_t>(anchor));
  }
}

void SessionCore::make_anchor(Pass& pass, const Call& call, std::size_t number) {
  const ChunkLayout::AnchorShape& anchor = pass.layout->anchors[number];
  const auto output = static_cast<std::size_t>(anchor.output);
  if (output >= call.makes.size()) return;
  ++pass.anchors_found;
  const ValueId id = call.makes[output].value;
  Value& value = book_->value(id);
  const auto alive = value.pin.lock();
  if (!alive || !value.unchanged()) {
    count_fallback("an anchor was gone before it could be held");
    return;
  }
  if (!value.buffer.expired()) return;
  const auto id_of_anchor = static_cast<int>(pass.layout->fallback.size() + number);
  const BufferRef buffer = new_buffer(pass, id_of_anchor, c10::Storage(alive), value.counter);
  buffer->anchor = true;
  buffer->signature = value.signature;
  const ResultsReady there =
      call.traits->collective ? results_of(*call.traits) : ResultsReady::kOnReturn;
  // Results that are not complete yet are kept until they are.
  buffer->action = there == ResultsReady::kOnReturn ? anchor.action : ActionKind::kKeep;
  attach(buffer, id);
  hold_root(id, *pass.book);
  pass.anchors.push_back(id);
  if (!call.traits->collective && sharding_.start(buffer)) return;
  if (there == ResultsReady::kAfterWait && anchor.action == ActionKind::kOffload) {
    pass.pending_collectives.push_back(buffer);
  }
  if (buffer->action == ActionKind::kOffload) start_offload(buffer);
}

void SessionCore::offload_completed(const Call& wait) {
  Pass& pass = *passes_[static_cast<std::size_t>(wait.pass)];
  if (pass.pending_collectives.empty() || wait.tensors.empty()) return;
  const BufferRef arrived = book_->value(wait.tensors.front().value).buffer.lock();
  const auto found = std::find_if(pass.pending_collectives.begin(), pass.pending_collectives.end(),
                                  [&](const WeakBuffer& each) { return each.lock() == arrived; });
  if (arrived == nullptr || found == pass.pending_collectives.end()) return;
  pass.pending_collectives.erase(found);
  arrived->action = ActionKind::kOffload;
  start_offload(arrived);
}

void SessionCore::attach(const BufferRef& buffer, ValueId id) {
  Value& value = buffer->pass->book->value(id);
  buffer->value = id;
  // An anchor may hold it already; what autograd saved is then held twice, in one storage.
  value.buffer = buffer;
  if (value.root_count > 0 && !value.copied && is_stored(buffer) && !buffer->awaited) {
    mutex_.free_outside(std::exchange(value.root_storage, c10::Storage()));
    drop_locked(std::exchange(value.root_buffer, buffer));
  }
}

void SessionCore::settle_awaited() {
  if (awaited_.empty()) return;
  const std::vector<WeakBuffer> awaited = std::exchange(awaited_, {});
  for (const WeakBuffer& each : awaited) {
    const BufferRef buffer = each.lock();
    if (buffer == nullptr || !buffer->awaited) continue;
    const Value& value = buffer->pass->book->value(buffer->value);
    // The running call may be producing it.
    const bool being_made = value.maker < 0 && value.unclaimed && !running_calls_.empty();
    if (being_made) {
      awaited_.push_back(each);
    } else {
      settle(buffer);
    }
  }
}

void SessionCore::require_trust(const BufferRef& buffer, Recipe& recipe) {
  const auto [trust, first] = recipes_.ask(recipe.signature);
  if (buffer->verify || (trust == Trust::kVerified && !recipe.unverified)) return;
  if (trust == Trust::kMismatched) {
    recipe.problem = "another buffer with its recipe had other bits when it was verified";
    return;
  }
  if (trust == Trust::kRootLost) {
    recipe.problem = "in an earlier step the owner of what its recipe starts from freed it";
    return;
  }
  if (first) {
    count_fallback("a recipe was not verified yet: its buffer was offloaded, and compared");
  }
  buffer->verify = true;
  buffer->action = ActionKind::kOffload;
  start_offload(buffer);
}

void SessionCore::look_for_freed_weights(const Pass& pass, FreedWeights::At at) {
  // The backward of an earlier step's pass may begin now; its calls ran elsewhere.
  if (pass.book == nullptr || pass.over) return;
  freed_weights_.look(*pass.book, pass.number, at, call_locations_, mutex_);
}

void SessionCore::require_weights(const SavedBuffer& buffer, Recipe& recipe) const {
  const std::vector<std::vector<std::string>>& saved_in = buffer.pass->layout->saved_in;
  const auto id = static_cast<std::size_t>(buffer.id);
  for (const CallId reader : recipe.freed_reads) {
    const Call& call = buffer.pass->book->call(reader);
    if (id < saved_in.size() && freed_weights_.are_there(call.signature, saved_in[id])) continue;
    recipe.problem = std::string(kReadsFreedWeight) + " (" + call.traits->name + ")";
    return;
  }
}

void SessionCore::settle(const BufferRef& buffer) {
  buffer->awaited = false;
  RecipeBook& book = *buffer->pass->book;
  Recipe recipe = find_recipe(book, buffer->value, freed_weights_);
  buffer->recipe = recipe.signature;
  if (recipe) require_weights(*buffer, recipe);
  if (recipe && !book.incomplete().empty()) recipe.problem = book.incomplete();
  if (recipe) require_trust(buffer, recipe);
  if (!recipe) {
    const auto id = static_cast<std::size_t>(buffer->id);
    const ChunkLayout& layout = *buffer->pass->layout;
    const ActionKind fallback = layout.fallback[id];
    if (layout.action[id] == ActionKind::kRecompute) {
      count_fallback("not recomputable: " + recipe.problem);
    }
    if (buffer->verify) {
      buffer->verify = false;
      // Where collectives are not repeated in this step, they may be in the next one.
      if (layout.action[id] == ActionKind::kRecompute && !collectives_.differ()) {
        recipes_.mark_unrecomputable({buffer->pass->key.chunk, buffer->id}, recipe.problem);
      }
    } else {
      buffer->action = fallback;
      if (fallback == ActionKind::kOffload) start_offload(buffer);
    }
    return;
  }
  buffer->roots = recipe.roots;
  buffer->freed_reads = recipe.freed_reads;
  for (const ValueId root : buffer->roots) hold_root(root, book);
  if (buffer->verify) {
    book.value(buffer->value).verified_as = buffer->id;
    return;
  }
  buffer->windows.clear();
  streams_.keep_until_read(*buffer, buffer->storage);
  mutex_.free_outside(std::exchange(buffer->storage, c10::Storage()));
  machine_.discard(*buffer);
}

void SessionCore::hold_root(ValueId root, RecipeBook& book) {
  Value& value = book.value(root);
  if (value.root_count++ > 0) return;
  value.root_buffer = value.buffer.lock();
  if (!is_stored(value.root_buffer)) value.root_buffer.reset();
  // Calls that read a weight hold the weight.
  if (value.root_buffer == nullptr && !value.of_weights) {
    value.root_storage = c10::Storage(value.pin.lock());
  }
}

void SessionCore::release_root(ValueId root, RecipeBook& book) {
  Value& value = book.value(root);
  if (--value.root_count > 0) return;
  mutex_.free_outside(std::exchange(value.root_storage, c10::Storage()));
  drop_locked(std::exchange(value.root_buffer, nullptr));
}

void SessionCore::detach_from_book(SavedBuffer& buffer) {
  RecipeBook& book = *buffer.pass->book;
  Value& value = book.value(buffer.value);
  if (value.recomputed && value.readers_left == 0) {
    mutex_.free_outside(std::exchange(value.recomputed, c10::Storage()));
  }
  const bool passed_on = buffer.action == ActionKind::kRecompute && buffer.on_device();
  if (passed_on && value.readers_left > 0 && !value.recomputed) {
    value.recomputed = buffer.storage;  // Later replays read it.
    book.cached().push_back(buffer.value);
  }
  for (const ValueId root : std::exchange(buffer.roots, {})) release_root(root, book);
}

}  // namespace spillway
