#include "session_core.hpp"

#include <algorithm>
#include <utility>

#include "scope_recording.hpp"
#include "spillway/core/error.hpp"
#include "spillway/memory/host_system.hpp"

namespace spillway {
namespace {

/// A tensor that stays on the device in its own storage.
class KeptTensor final : public SavedTensor {
 public:
  explicit KeptTensor(const at::Tensor& tensor) : tensor_(without_history(tensor)) {
    if (is_plain(tensor)) window_.emplace(tensor);
  }

  [[nodiscard]] at::Tensor unpack() override {
    if (window_) window_->require_unmodified();
    return tensor_;
  }

 private:
  at::Tensor tensor_;
  std::optional<TensorWindow> window_;
};

/// A tensor whose buffer the session has in its hands.
class ManagedTensor final : public SavedTensor {
 public:
  ManagedTensor(std::shared_ptr<SessionCore> core, std::shared_ptr<SavedBuffer> buffer,
                const at::Tensor& tensor)
      : core_(std::move(core)), buffer_(std::move(buffer)), window_(tensor) {}
  ~ManagedTensor() override { core_->drop(std::move(buffer_)); }

  [[nodiscard]] at::Tensor unpack() override { return core_->unpack(*buffer_, window_); }

 private:
  std::shared_ptr<SessionCore> core_;
  std::shared_ptr<SavedBuffer> buffer_;
  TensorWindow window_;
};

Limits limits_of(const SessionOptions& options) {
  return options.plan ? options.plan->limits : options.rules.limits;
}

}  // namespace

SessionCore::SessionCore(SessionOptions options)
    : options_(std::move(options)),
      device_(make_torch_device(options_.device)),
      out_window_(limits_of(options_).in_flight.value_or(options_.in_flight)),
      reload_window_(limits_of(options_).ahead.value_or(options_.ahead)) {
  const Limits limits = limits_of(options_);
  if (limits.min_size) options_.small = std::max(options_.small, *limits.min_size);
  const Bytes host =
      limits.host.value_or(std::min(options_.host, Bytes(available_host_memory().count() / 2)));
  slab_ = std::make_unique<Slab>(device_->device(),
                                 SlabOptions{.capacity = host, .prepare = options_.prepare});
  host_tier_ = std::make_unique<HostTier>(*slab_);
  limited_tier_ = std::make_unique<LimitedTier>(*host_tier_, host);
  tier_ = std::make_unique<CountingTier>(*limited_tier_);
  engine_ = std::make_unique<TransferEngine>(device_->device(), *tier_);
  if (options_.plan) use_plan(*options_.plan);
}

SessionCore::~SessionCore() = default;

std::unique_ptr<SavedTensor> SessionCore::pack(const at::Tensor& tensor) {
  std::unique_lock lock(mutex_);
  const auto kept = [&] {
    // To detach a tensor of a Python class runs Python code, which may save and free tensors.
    lock.unlock();
    return std::make_unique<KeptTensor>(tensor);
  };
  const FixedReason fixed = fixed_reason(tensor);
  Pass& pass = current_pass();
  const bool movable = fixed == FixedReason::kNone;
  if (recording_) {
    const int id = pass.record->save(tensor, fixed, *operators_);
    if (!movable) return kept();
    return std::make_unique<ManagedTensor>(shared_from_this(), find_or_offload(tensor, id, true),
                                           tensor);
  }
  const std::size_t place = pass.next_site++;
  const ChunkLayout* const layout = pass.layout.get();
  if (layout != nullptr && !pass.diverged) {
    const bool known = place < layout->sites.size() &&
                       layout->sites[place].dtype == tensor.scalar_type() &&
                       layout->sites[place].dimensions == static_cast<std::size_t>(tensor.dim());
    if (!known) diverge(pass);
  }
  if (!movable) return kept();
  if (layout == nullptr || pass.diverged) {
    return std::make_unique<ManagedTensor>(shared_from_this(), find_or_offload(tensor, -1, false),
                                           tensor);
  }
  const int id = layout->sites[place].buffer;
  return std::make_unique<ManagedTensor>(
      shared_from_this(),
      find_or_offload(tensor, id, layout->offload[static_cast<std::size_t>(id)]), tensor);
}

FixedReason SessionCore::fixed_reason(const at::Tensor& tensor) const {
  if (!is_plain(tensor)) return FixedReason::kUnsupportedLayout;
  if (tensor.device() != device_->torch_device()) return FixedReason::kOtherDevice;
  const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  if (const auto found = fixed_.find(storage); found != fixed_.end()) return found->second.reason;
  if (Bytes(storage->nbytes()) < options_.small) return FixedReason::kSmall;
  return FixedReason::kNone;
}

Pass& SessionCore::current_pass() {
  // A forward that follows a backward is the next micro-batch, unless the caller counts them.
  if (passes_.empty() || (!explicit_passes_ && passes_.back()->backward_begun)) {
    begin_pass({0, static_cast<int>(passes_.size())});
  }
  return *passes_.back();
}

void SessionCore::begin_explicit_pass(PassKey key) {
  const std::lock_guard lock(mutex_);
  explicit_passes_ = true;
  begin_pass(key);
}

void SessionCore::begin_pass(PassKey key) {
  auto pass = std::make_shared<Pass>();
  pass->key = key;
  if (recording_) {
    pass->record = std::make_unique<PassRecord>();
    pass->record->begin_forward(device_->mark());
  } else if (const auto found = layouts_.find(key.chunk); found != layouts_.end()) {
    pass->layout = found->second;
    pass->buffers.resize(pass->layout->offload.size());
  } else if (plan_ != nullptr) {
    record_next_ = true;
    count_fallback("a chunk that was not recorded");
  }
  passes_.push_back(std::move(pass));
}

void SessionCore::diverge(Pass& pass) {
  pass.diverged = true;
  record_next_ = true;
  count_fallback("the pass saved something else than what was recorded");
}

SessionCore::BufferRef SessionCore::find_or_offload(const at::Tensor& tensor, int id,
                                                    bool offload) {
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
  auto buffer = std::make_shared<SavedBuffer>();
  buffer->pass = passes_.back();
  buffer->id = id;
  buffer->bytes = storage->nbytes();
  buffer->version = version;
  buffer->original = StoragePin(storage);
  buffer->storage = tensor.storage();
  buffer->stream = &device_->current_stream();
  saved_ += buffer->bytes;
  step_.saved_peak = std::max(step_.saved_peak, saved_);
  hold(buffer->bytes);
  if (id >= 0) {
    pass.buffers[static_cast<std::size_t>(id)] = buffer;
  } else {
    pass.extra.push_back(buffer);
  }
  if (offload) start_offload(buffer);
  return buffer;
}

void SessionCore::start_offload(const BufferRef& buffer) {
  const auto* const data = static_cast<const std::byte*>(buffer->storage.data());
  std::optional<Ticket> ticket = engine_->offload({data, buffer->bytes}, *buffer->stream);
  if (!ticket) {
    count_fallback("the host tier is full");
    return;
  }
  buffer->ticket = std::move(*ticket);
  buffer->in_window = true;
  step_.bytes_out += Bytes(buffer->bytes);
  out_window_.push(buffer, Bytes(buffer->bytes));
  release_overdue();
}

void SessionCore::release_overdue() {
  while (const std::optional<WeakBuffer> due = out_window_.pop_overdue()) {
    if (const BufferRef buffer = due->lock()) release(*buffer);
  }
}

void SessionCore::release(SavedBuffer& buffer) {
  buffer.in_window = false;
  engine_->release(buffer.ticket, *buffer.stream);
  device_->catch_up(*buffer.stream);
  mutex_.free_outside(std::exchange(buffer.storage, c10::Storage()));
  let_go(buffer.bytes);
  if (buffer.pass->record != nullptr) buffer.pass->record->released(buffer.id);
}

void SessionCore::hold(std::size_t bytes) {
  on_device_ += bytes;
  step_.on_device_peak = std::max(step_.on_device_peak, on_device_);
}

void SessionCore::register_fixed(const at::Tensor& tensor, FixedReason reason) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const std::lock_guard lock(mutex_);
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  fixed_.insert_or_assign(storage, Fixed{reason, StoragePin(storage)});
}

}  // namespace spillway
