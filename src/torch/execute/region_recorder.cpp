#include "torch/execute/region_recorder.hpp"

#include <algorithm>
#include <utility>

#include "torch/execute/session_core.hpp"

namespace spillway {
namespace {

/// Of host memory, the share that stays free for what replays start from when passes begin to be
/// cut into regions.
constexpr std::uint64_t kHostShare = 4;
/// Of the budget: what a region may take, and what it takes at least before it ends with a layer.
constexpr std::uint64_t kMostShare = 2;
constexpr std::uint64_t kLeastShare = 16;
/// The same in a verification step, in which the plan has its own buffers on the device.
constexpr std::uint64_t kMostVerifiedShare = 16;
constexpr std::uint64_t kLeastVerifiedShare = 64;
/// Of the budget: what the offload and prefetch windows may take.
constexpr std::uint64_t kWindowShare = 8;

bool is_number(const std::string& scope, std::size_t begin, std::size_t end) {
  return begin < end && std::all_of(scope.begin() + static_cast<std::ptrdiff_t>(begin),
                                    scope.begin() + static_cast<std::ptrdiff_t>(end),
                                    [](char each) { return '0' <= each && each <= '9'; });
}

/// The outermost numbered part of a scope, with what precedes it: "model.layers.3". Empty: none.
std::string layer_of(const std::string& scope) {
  for (std::size_t begin = 0; begin < scope.size();) {
    const std::size_t end = std::min(scope.find('.', begin), scope.size());
    if (is_number(scope, begin, end)) return scope.substr(0, end);
    begin = end + 1;
  }
  return {};
}

std::int64_t share_of(Bytes bytes, std::uint64_t share) {
  return EngineLimits::count(Bytes(bytes.count() / share));
}

}  // namespace

bool RegionRecorder::is_needed() const {
  return needed_ && (core_.task_.mode == StepMode::kInterim || core_.task_.verifies());
}

void RegionRecorder::begin_step(bool calls) {
  state_ = State::kOff;
  region_.reset();
  forget_roots();
  recorded_ = core_.task_.records();
  verifies_ = !recorded_ && core_.task_.verifies();
  if (!core_.options_.regions || !calls || !(recorded_ || verifies_ || is_needed())) return;
  if (verifies_) {
    if (!has_room_to_verify()) begin_cutting();
    return;
  }
  state_ = State::kOffloading;
  const Bytes budget = core_.options_.budget ? core_.controller_.budget().known_budget() : Bytes(0);
  if (budget == Bytes(0)) return;
  EngineLimits limits = core_.machine_.limits();
  limits.offload_window = std::min(limits.offload_window, share_of(budget, kWindowShare));
  limits.prefetch_window = std::min(limits.prefetch_window, share_of(budget, kWindowShare));
  core_.machine_.set_limits(limits);
}

void RegionRecorder::end_step() noexcept {
  if (recorded_) needed_ = state_ == State::kCutting;
  recorded_ = false;
  verifies_ = false;
  state_ = State::kOff;
  forget_roots();
  const std::shared_ptr<Region> region = std::exchange(region_, nullptr);
  if (region == nullptr || region->ending) return;
  try {
    release_inputs(core_, *region);
  } catch (...) {
    core_.note_failure("the end of a region");
  }
}

void RegionRecorder::forget_roots() noexcept {
  roots_.clear();
  is_root_.clear();
}

bool RegionRecorder::has_room_to_verify() const {
  if (needed_) return false;
  std::size_t bytes = 0;
  for (const auto& [chunk, layout] : core_.layouts_) {
    for (std::size_t id = 0; id < layout->bytes.size(); ++id) {
      const bool moves = layout->action[id] == ActionKind::kOffload || layout->compared[id];
      if (moves) bytes += layout->bytes[id];
    }
  }
  return bytes <= core_.tier_->capacity().count();
}

std::size_t RegionRecorder::verification_bytes(std::size_t otherwise) const {
  return state_ == State::kCutting ? 2 * static_cast<std::size_t>(most_) : otherwise;
}

void RegionRecorder::begin_cutting() {
  state_ = State::kCutting;
  Bytes budget = core_.options_.budget ? core_.controller_.budget().known_budget() : Bytes(0);
  if (budget == Bytes(0)) budget = Bytes(core_.device_->room().count() / 2);
  most_ = share_of(budget, verifies_ ? kMostVerifiedShare : kMostShare);
  least_ = share_of(budget, verifies_ ? kLeastVerifiedShare : kLeastShare);
}

bool RegionRecorder::take(const BufferRef& buffer) {
  if (state_ == State::kOffloading) {
    const Bytes used = core_.tier_->counts().current + Bytes(buffer->bytes);
    const std::uint64_t all = core_.tier_->capacity().count();
    if (used.count() > all - all / kHostShare) begin_cutting();
  }
  if (state_ != State::kCutting || region_ == nullptr || region_->ending) return false;
  if (region_->pass != buffer->pass || region_->pass->backward_begun) return false;
  if (buffer->verify != verifies_) return false;
  if (!verifies_) buffer->action = ActionKind::kKeep;
  region_->bytes += buffer->footprint;
  region_->buffers.push_back(buffer);
  return true;
}

void RegionRecorder::saved(SavedBuffer& buffer, const at::Tensor& tensor) {
  if (state_ != State::kCutting) return;
  buffer.covered =
      buffer.covered || (tensor.nbytes() == buffer.bytes && tensor.is_non_overlapping_and_dense());
  const bool again = buffer.state == BufferState::kDiscarded && region_ != nullptr &&
                     !region_->ending && region_->is_input.contains(buffer.value);
  if (again) region_->saved_again.push_back(buffer.value);
}

bool RegionRecorder::is_over(const std::string& scope, c10::ArrayRef<const c10::IValue> inputs) {
  if (region_ == nullptr || region_->ending) return false;
  if (!core_.running_calls_.empty() || core_.backward_announced_) return false;
  if (core_.passes_.empty() || core_.passes_.back() != region_->pass) return true;
  const std::string layer = layer_of(scope);
  const bool next = layer != std::exchange(region_->layer, layer);
  if (region_->bytes == 0 || region_->bytes < least_) return false;
  if (next || region_->bytes >= most_) return true;
  if (!layer.empty()) return false;
  // Without layers, where the next call reads as little as any: what it reads has to be stored.
  const std::int64_t reads = activations_in(inputs);
  if (reads == 0) return false;
  region_->narrowest = std::min(region_->narrowest, reads);
  return region_->bytes >= most_ / 2 && reads == region_->narrowest;
}

std::int64_t RegionRecorder::activations_in(c10::ArrayRef<const c10::IValue> inputs) const {
  std::int64_t bytes = 0;
  for (const c10::IValue& input : inputs) {
    if (!input.isTensor()) continue;
    const at::Tensor& tensor = input.toTensor();
    if (!tensor.defined() || core_.fixed_reason(tensor) != FixedReason::kNone) continue;
    bytes += static_cast<std::int64_t>(tensor.storage().nbytes());
  }
  return bytes;
}

void RegionRecorder::call_begins(CallId id, const std::string& scope) {
  if (state_ != State::kCutting) return;
  if (region_ == nullptr) {
    if (!core_.running_calls_.empty()) return;
    begin_region(id, scope);
  }
  const Call& call = core_.book_->call(id);
  if (region_->ending || region_->pass->number != call.pass) return;
  for (const TensorArgument& argument : call.tensors) {
    const Value& value = core_.book_->value(argument.value);
    const bool before = value.maker < 0 || value.maker < region_->first_call;
    // What came from outside and is only written is no input of a replay.
    if (before && !(argument.written && value.maker < 0)) hold(*region_, argument.value);
    if (argument.written) forget_original(argument.value);
  }
}

void RegionRecorder::call_ended(const Call& call) {
  if (region_ == nullptr || region_->ending) return;
  if (region_->pass->number != call.pass) return;
  if (call.no_replay.empty() || call.wrote_foreign) return;
  for (const Made& made : call.makes) hold(*region_, made.value);
}

void RegionRecorder::begin_region(CallId first_call, const std::string& scope) {
  region_ = std::make_shared<Region>();
  region_->pass = core_.passes_.back();
  region_->verified = verifies_;
  region_->first_call = first_call;
  region_->layer = layer_of(scope);
}

void RegionRecorder::hold(Region& region, ValueId id) {
  Value& value = region.pass->book->value(id);
  // Weights belong to their owners, and replays find them there.
  if (value.fixed || value.of_weights || !region.is_input.insert(id).second) return;
  region.inputs.push_back(id);
  if (region.verified) {
    value.held = c10::Storage(value.pin.lock());  // The plan has its own roots.
    return;
  }
  ++value.root_count;
  if (!value.root_storage && !value.copied) value.root_storage = c10::Storage(value.pin.lock());
  if (value.root_buffer != nullptr) return;
  value.root_buffer = value.buffer.lock();
  if (!is_stored(value.root_buffer)) value.root_buffer.reset();
}

void RegionRecorder::release_inputs(SessionCore& core, Region& region) {
  RecipeBook& book = *region.pass->book;
  for (const ValueId id : std::exchange(region.inputs, {})) {
    if (region.verified) {
      core.mutex_.free_outside(std::exchange(book.value(id).held, c10::Storage()));
    } else {
      core.release_root(id, book);
    }
  }
}

void RegionRecorder::forget_original(ValueId id) {
  core_.mutex_.free_outside(std::exchange(core_.book_->value(id).held, c10::Storage()));
}

void RegionRecorder::begin_backward(const Pass& pass) {
  if (region_ == nullptr || region_->ending || region_->pass.get() != &pass) return;
  release_inputs(core_, *region_);
  const std::shared_ptr<Region> region = std::exchange(region_, nullptr);
  if (!verifies_) return;
  // They are verified when backward reads them.
  for (const std::weak_ptr<SavedBuffer>& each : region->buffers) {
    if (const BufferRef buffer = each.lock()) core_.start_offload(buffer);
  }
}

void RegionRecorder::read(SavedBuffer& buffer) {
  if (state_ != State::kCutting || buffer.pass->profiler == nullptr) return;
  if (buffer.state != BufferState::kResident || buffer.action != ActionKind::kKeep) return;
  if (!std::exchange(buffer.read, true) && buffer.storage.use_count() > 1) {
    TorchPort::note_held(buffer);
  }
}

Bytes RegionRecorder::cache_limit(Bytes otherwise) const {
  const Bytes most(static_cast<std::uint64_t>(most_));
  return state_ == State::kCutting && !verifies_ ? std::min(otherwise, most) : otherwise;
}

std::int64_t RegionRecorder::bytes() const {
  if (state_ != State::kCutting || core_.book_ == nullptr) return 0;
  RecipeBook& book = *core_.book_;
  std::int64_t sum = 0;
  const auto add = [&](const c10::Storage& storage) {
    // Others that hold it own it as well: then it is theirs.
    if (!storage || storage.use_count() != 1) return;
    sum += static_cast<std::int64_t>(core_.device_->handed_out(storage.nbytes()));
  };
  const auto add_root = [&](ValueId id) {
    const Value& value = book.value(id);
    const BufferRef buffer = value.buffer.lock();
    const bool is_saved = buffer != nullptr && !buffer->anchor && !value.copied;
    if (value.root_count == 0) return;
    if (!is_saved) add(value.root_storage);  // Saved buffers are counted anyway.
    if (value.root_buffer != nullptr && value.root_buffer->anchor) add(value.root_buffer->storage);
  };
  for (const ValueId id : roots_) add_root(id);
  if (region_ != nullptr) {
    for (const ValueId id : region_->inputs) {
      if (!is_root_.contains(id)) add_root(id);
    }
  }
  for (const ValueId id : book.cached()) add(book.value(id).recomputed);
  return sum;
}

std::size_t RegionRecorder::holds(const c10::StorageImpl* storage) const {
  if (state_ != State::kCutting || core_.book_ == nullptr) return 0;
  const auto is_it = [&](ValueId id) {
    return core_.book_->value(id).root_storage.unsafeGetStorageImpl() == storage;
  };
  if (std::ranges::any_of(roots_, is_it)) return 1;
  return region_ != nullptr && std::ranges::any_of(region_->inputs, is_it) ? 1 : 0;
}

}  // namespace spillway
