#include "torch/execute/session_core.hpp"

#include <algorithm>
#include <utility>

#include "spillway/core/error.hpp"
#include "spillway/memory/host_system.hpp"
#include "torch/execute/saved_tensors.hpp"
#include "torch/graph/weights.hpp"
#include "torch/replay/collective_results.hpp"

namespace spillway {
namespace {

Limits limits_of(const SessionOptions& options) {
  return options.plan ? options.plan->limits : options.rules.limits;
}

ControllerOptions controller_options(const SessionOptions& options) {
  return {.rules = options.rules,
          .budget = options.budget,
          .plan_in_background = options.plan_in_background,
          .planning_time = options.planning_time,
          .drift = options.drift,
          .replan = options.replan,
          .strict = options.strict,
          .offload_window = options.offload_window,
          .prefetch_window = options.prefetch_window,
          .recompute_cache = options.recompute_cache,
          .verify_every = options.verify_every,
          .prepare = options.prepare};
}

}  // namespace

SessionCore::SessionCore(SessionOptions options, std::unique_ptr<TorchDevice> device)
    : options_(std::move(options)),
      device_(std::move(device)),
      streams_(*device_),
      copies_(*device_, streams_),
      controller_(controller_options(options_), *this),
      log_(*device_),
      waits_(*device_, options_.time_waits_every),
      watch_(device_->granularity(), regions_) {
  const Limits limits = limits_of(options_);
  if (limits.min_size) options_.small = std::max(options_.small, *limits.min_size);
  const Bytes host =
      limits.host.value_or(std::min(options_.host, std::max(kHugePage, host_memory_for_rank())));
  slab_ = std::make_unique<Slab>(
      device_->device(),
      SlabOptions{.capacity = host, .chunk = device_->host_chunk(), .prepare = options_.prepare});
  host_tier_ = std::make_unique<HostTier>(*slab_);
  limited_tier_ = std::make_unique<LimitedTier>(*host_tier_, host);
  tier_ = std::make_unique<CountingTier>(*limited_tier_);
  engine_ = std::make_unique<TransferEngine>(device_->device(), *tier_);
  set_engine_limits(limits);
  if (options_.fuse_replays) chains_ = device_->make_chain_runner();
  if (options_.plan) use_plan(*options_.plan);
  // Before any step, so that it does not count as the memory of one.
  const RecordingPause pause;
  copies_.prepare();
}

SessionCore::~SessionCore() = default;

std::unique_ptr<SavedTensor> SessionCore::pack(const at::Tensor& tensor) {
  const bool captures = device_->is_capturing();
  const ComputePause compute_pause(*this);
  const std::string scope = Scope::current();  // Not under the lock: it may take an interpreter.
  std::unique_lock lock(mutex_);
  if (!captures) digest_sources(lock, copies_.sources().take_unshared());
  if (captures || !runs_here()) {
    if (captures) note_capture();
    lock.unlock();
    return std::make_unique<KeptTensor>(tensor);
  }
  const FixedReason fixed = fixed_reason(tensor);
  const bool movable = fixed == FixedReason::kNone;
  Pass& pass = current_pass();
  const std::shared_ptr<Pass> pass_ref = passes_.back();
  if (pass.saves++ == 0) note_first_save(pass);
  pass.calls_since_save.clear();
  const bool ordinary = movable || is_ordinary(tensor);
  const ValueId value = pass.book != nullptr && ordinary ? pass.book->saved(tensor) : -1;
  if (!movable && value >= 0) pass.book->value(value).kept = true;

  Signature signature = 0;
  if (task_.signs_saves && pass.book != nullptr) {
    signature = pass.book->sign_save(value, running_call(), tensor);
    pass.saved = combined(pass.saved, signature);
  }

  const auto [site, id, action] = decision_for(pass, tensor, fixed, value, scope, signature);
  const bool timed = pass.timed && id >= 0 && is_step_memory(fixed);
  note_moment(pass, MomentKind::kSave, static_cast<int>(site));
  const bool caller_owned =
      id >= 0 && (pass.layout != nullptr ? pass.layout->caller_owned[static_cast<std::size_t>(id)]
                                         : fixed == FixedReason::kCallerOwned);
  if (id >= 0 && value >= 0 && pass.layout != nullptr) {
    Value& saved = pass.book->value(value);
    const bool elsewhere = pass.layout->owned_elsewhere[static_cast<std::size_t>(id)];
    saved.owned_elsewhere = saved.owned_elsewhere || elsewhere;
  }
  if (!movable || caller_owned) {
    if (movable && value >= 0) pass.book->value(value).kept = true;
    if (id >= 0 && is_step_memory(fixed)) note_growth(pass, id, tensor.storage().nbytes());
    if (timed) note_site(pass_ref, id, tensor, nullptr);
    machine_.saved(pass, site);
    // Detaching a tensor of a Python class runs Python code, which may save and free tensors.
    lock.unlock();
    if (!timed && !caller_owned) return std::make_unique<KeptTensor>(tensor);
    return std::make_unique<KeptTensor>(tensor, shared_from_this(), pass_ref, timed ? id : -1,
                                        caller_owned);
  }
  BufferRef buffer = saved_before(pass, tensor, value);
  if (buffer == nullptr) buffer = find_or_add(tensor, id, action, signature);
  try {
    streams_.note_saver(*buffer, tensor.storage());
    check_saved(*buffer, tensor);
    if (buffer->awaited || buffer->verify) buffer->windows.emplace_back(tensor);
    if (timed) note_site(pass_ref, id, tensor, buffer);
    if (value >= 0 && buffer->value < 0) attach(buffer, value);
    regions_.saved(*buffer, tensor);
    settle_awaited();
    machine_.saved(pass, site);
    return std::make_unique<ManagedTensor>(shared_from_this(), buffer, timed ? id : -1, tensor);
  } catch (...) {
    drop_unsaved(std::move(buffer));
    throw;
  }
}

void SessionCore::drop_unsaved(BufferRef buffer) noexcept {
  try {
    drop_locked(std::move(buffer));
  } catch (...) {
    note_failure("dropping a tensor that could not be saved");
  }
}

void SessionCore::note_growth(Pass& pass, int id, std::size_t bytes) const {
  if (pass.layout == nullptr) return;
  const std::size_t now = device_->handed_out(bytes);
  const std::size_t recorded =
      device_->handed_out(pass.layout->bytes[static_cast<std::size_t>(id)]);
  pass.reserve += static_cast<std::int64_t>(now - std::min(now, recorded));
}

void SessionCore::note_first_save(Pass& pass) {
  // They may be the caller's own, so their number may differ from pass to pass.
  pass.calls_before_first_save = pass.next_call;
  if (pass.profiler != nullptr) pass.profiler->first_save(pass.next_call);
  if (pass.layout == nullptr || pass.book == nullptr || pass.layout->anchors.empty()) return;
  for (CallId id = 0; id < pass.book->calls(); ++id) {
    const Call& call = pass.book->call(id);
    if (call.pass != pass.number || !call.ended) continue;
    make_anchors(call);
    if (waits_for_results(*call.traits)) offload_completed(call);
  }
}

FixedReason SessionCore::fixed_reason(const at::Tensor& tensor) const {
  if (!is_ordinary(tensor)) return FixedReason::kUnsupportedLayout;
  if (tensor.device() != device_->torch_device()) return FixedReason::kOtherDevice;
  const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  if (const std::optional<FixedReason> fixed = fixed_.reason_of(storage)) return *fixed;
  // Nothing of an empty one can be moved, even where no buffer is too small.
  if (Bytes(storage->nbytes()) < std::max(options_.small, Bytes(1))) return FixedReason::kSmall;
  const at::Tensor weight = weight_of(tensor);
  if (!weight.defined()) return FixedReason::kNone;
  // Its graph holds a leaf, so moving it would free nothing.
  return is_python_parameter(weight) ? FixedReason::kParameter : FixedReason::kCallerOwned;
}

Pass& SessionCore::current_pass() {
  // A forward that follows a backward is the next micro-batch, unless the caller counts them.
  if (passes_.empty() || (!explicit_passes_ && passes_.back()->backward_begun)) {
    begin_pass({0, static_cast<int>(passes_.size())});
  }
  return *passes_.back();
}

void SessionCore::begin_explicit_pass(StepNumber number, PassKey key) {
  if (!in_its_process() || device_->is_capturing()) return;
  const ComputePause compute_pause(*this);
  const std::lock_guard lock(mutex_);
  if (!is_step(number)) return;
  explicit_passes_ = true;
  begin_pass(key);
}

void SessionCore::begin_pass(PassKey key) {
  sharding_.close_forward();
  machine_.copy_held();
  backward_announced_ = false;
  auto pass = std::make_shared<Pass>();
  pass->key = key;
  pass->number = static_cast<int>(passes_.size());
  follow(*pass, false);
  pass->book = book_;
  if (log_.times_compute()) pass->timed.emplace();
  if (task_.records()) {
    pass->profiler = std::make_unique<PassProfiler>();
  } else if (const auto found = layouts_.find(key.chunk); found != layouts_.end()) {
    pass->layout = found->second;
    pass->buffers.resize(pass->layout->action.size());
    const auto same = [&](const auto& each) { return each->key.chunk == key.chunk; };
    pass->residency =
        pass->layout->residency.of(static_cast<std::size_t>(std::ranges::count_if(passes_, same)));
    if (task_.verifies()) {
      pass->reserve =
          static_cast<std::int64_t>(regions_.verification_bytes(pass->layout->verification_bytes));
    }
  } else if (current_.plan() != nullptr && !idle_chunks_.contains(key.chunk)) {
    note_unrecorded_chunk();
  }
  order_.emplace_back(pass, false);
  sharding_.open(pass);
  passes_.push_back(std::move(pass));
}

void SessionCore::note_unrecorded_chunk() {
  controller_.record_again();
  count_fallback("a chunk was not profiled");
}

SessionCore::BufferRef SessionCore::saved_before(const Pass& pass, const at::Tensor& tensor,
                                                 ValueId value) {
  if (value < 0) return nullptr;
  BufferRef buffer = pass.book->value(value).buffer.lock();
  if (buffer == nullptr || buffer->anchor || buffer->pass.get() != &pass) return nullptr;
  const bool same =
      buffer->original.is(tensor.storage().unsafeGetStorageImpl()) &&
      buffer->version == tensor.unsafeGetTensorImpl()->version_counter().current_version();
  return same ? buffer : nullptr;
}

SessionCore::BufferRef SessionCore::find_or_add(const at::Tensor& tensor, int id, ActionKind action,
                                                Signature signature) {
  Pass& pass = *passes_.back();
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const std::uint32_t version = tensor.unsafeGetTensorImpl()->version_counter().current_version();
  const auto fits = [&](const BufferRef& buffer) {
    return buffer != nullptr && buffer->original.is(storage) && buffer->version == version;
  };
  if (id >= 0) {
    if (pass.buffers.size() <= static_cast<std::size_t>(id)) {
      pass.buffers.resize(static_cast<std::size_t>(id) + 1);
    }
    if (BufferRef known = pass.buffers[static_cast<std::size_t>(id)].lock(); fits(known)) {
      return known;
    }
  } else {
    for (const WeakBuffer& each : pass.extra) {
      if (BufferRef known = each.lock(); fits(known)) return known;
    }
  }
  BufferRef buffer =
      new_buffer(pass, id, tensor.storage(), tensor.unsafeGetTensorImpl()->version_counter());
  buffer->signature = signature;
  check_saved(*buffer, tensor);
  if (id >= 0) {
    note_growth(pass, id, buffer->bytes);
  } else if (pass.layout != nullptr) {
    pass.reserve += buffer->footprint;
  }
  saved_ += buffer->bytes;
  step_.saved_peak = std::max(step_.saved_peak, saved_);
  try {
    begin_action(buffer, action);
  } catch (...) {
    drop_unsaved(std::move(buffer));
    throw;
  }
  return buffer;
}

void SessionCore::begin_action(const BufferRef& buffer, ActionKind action) {
  const Pass& pass = *buffer->pass;
  const int id = buffer->id;
  if (action == ActionKind::kKeep) set_kept_bytes(*buffer, buffer->bytes);
  // What shares a signature is trusted together, so it is compared together.
  const bool compared =
      id >= 0 && pass.layout != nullptr && pass.layout->compared[static_cast<std::size_t>(id)];
  buffer->verify = compared && task_.verifies();
  buffer->awaited = action == ActionKind::kRecompute || buffer->verify;
  buffer->action = buffer->verify ? ActionKind::kOffload : action;
  if (buffer->awaited) awaited_.push_back(buffer);
  if (sharding_.start(buffer)) return;
  if (buffer->action == ActionKind::kOffload && !regions_.take(buffer)) start_offload(buffer);
}

void SessionCore::set_kept_bytes(SavedBuffer& buffer, std::size_t bytes) {
  kept_bytes_ = kept_bytes_ - buffer.kept_bytes + bytes;
  buffer.kept_bytes = bytes;
  step_.kept_peak = std::max(step_.kept_peak, kept_bytes_);
}

SessionCore::BufferRef SessionCore::new_buffer(Pass& pass, int id, c10::Storage storage,
                                               const c10::VariableVersion& counter) {
  auto buffer = std::make_shared<SavedBuffer>();
  buffer->pass = passes_[static_cast<std::size_t>(pass.number)];
  buffer->id = id;
  buffer->bytes = storage.nbytes();
  buffer->version = counter.current_version();
  buffer->counter = counter;
  buffer->original = StoragePin(storage.unsafeGetStorageImpl());
  buffer->data = storage.data();
  buffer->storage = std::move(storage);
  buffer->stream = &device_->current_stream();
  StreamOrder::note(pass, *buffer->stream);
  buffer->footprint = static_cast<std::int64_t>(device_->handed_out(buffer->bytes));
  machine_.enter(*buffer);
  if (id >= 0) {
    pass.buffers[static_cast<std::size_t>(id)] = buffer;
  } else {
    pass.extra.push_back(buffer);
  }
  return buffer;
}

void SessionCore::start_offload(const BufferRef& buffer) {
  digest_saved(*buffer);
  machine_.offload(*buffer, buffer);
}

void SessionCore::set_engine_limits(const Limits& limits) {
  const auto window = [](std::optional<Bytes> planned, std::optional<Bytes> otherwise) {
    return EngineLimits::count(planned.value_or(otherwise.value_or(kDefaultWindow)));
  };
  EngineLimits of_engine;
  of_engine.offload_window = window(limits.offload_window, options_.offload_window);
  of_engine.prefetch_window = window(limits.prefetch_window, options_.prefetch_window);
  if (current_.plan() != nullptr && current_.plan()->cap) {
    of_engine.cap = EngineLimits::count(*current_.plan()->cap);
  }
  of_engine.shard_offload_window = of_engine.offload_window;
  // While a step is sharded, the ranks have agreed on it.
  const bool shards = sharding_.mode() == ShardMode::kSharding;
  of_engine.shard_prefetch_window =
      shards ? machine_.limits().shard_prefetch_window : of_engine.prefetch_window;
  machine_.set_limits(of_engine);
}

void SessionCore::register_fixed(const at::Tensor& tensor, FixedReason reason) {
  const std::lock_guard lock(mutex_);
  fixed_.add(tensor, reason);
}

}  // namespace spillway
