#include "torch/execute/shard_coordinator.hpp"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "torch/graph/storage_copy.hpp"
#include "torch/hooks/call_recorder.hpp"
#include "torch/ranks/gather_speed.hpp"
#include "torch/ranks/shard_digest.hpp"

namespace spillway {
namespace {

/// A digest of a pass's progress: equal on all ranks that run the same operators.
std::uint64_t progress_of(const Pass& pass) {
  return word_of({static_cast<std::uint64_t>(pass.number),
                  static_cast<std::uint64_t>(pass.key.chunk),
                  static_cast<std::uint64_t>(pass.next_call - pass.calls_before_first_save)});
}

constexpr const char* kOtherSaves =
    "sharding could not be verified: the ranks saved different buffers";

}  // namespace

void ShardCoordinator::set_group(std::shared_ptr<ShardGroup> group) {
  group_ = std::move(group);
  verification_.want();
  gathers_ = 0;
  speed_ = 0;
  if (ranks() > 1) speed_ = gather_speed(*group_, parts_.device.torch_device());
}

ShardModel ShardCoordinator::model() const {
  return {.ranks = group_ != nullptr ? group_->size() : 1, .bytes_per_second = speed_};
}

void ShardCoordinator::adopt_plan() {
  verification_.want();
  mismatched_.clear();
}

void ShardCoordinator::set_plan(const Plan& plan) { plan_ = shard_digest(plan); }

std::optional<std::int64_t> ShardCoordinator::begin_step(const Request& request) {
  mode_ = ShardMode::kNone;
  verification_.clear();
  const bool planned = !request.records && plan_ != 0;
  if (ranks() < 2) {
    if (planned) note_no_group();
    return std::nullopt;
  }
  const bool verifies =
      request.verifies || verification_.state() == ShardVerification::State::kWanted;
  const ShardAgreement agreed = agree(*group_, {.plan = planned ? plan_ : 0,
                                                .verify = planned && verifies,
                                                .prefetch_window = request.prefetch_window,
                                                .compare = request.records && request.compares,
                                                .gathers = gathers_});
  if (planned && !agreed.same_plan) {
    parts_.host.count_fallback(
        "a step was not sharded: a rank of the shard group recorded, or had another plan");
  }
  mode_ = agreed.mode;
  return agreed.prefetch_window;
}

void ShardCoordinator::note_no_group() {
  parts_.host.count_fallback("a step was not sharded: there is no shard group of several ranks");
  if (std::exchange(warned_, true)) return;
  TORCH_WARN(
      "[shard] the plan shards buffers, but there is no shard group of several ranks: they are "
      "kept or offloaded whole. Give the session a group (Session::set_shard_group()), or remove "
      "`shard` from the rules. This warning appears once per session.");
}

void ShardCoordinator::open(const std::shared_ptr<Pass>& pass) {
  if (mode_ != ShardMode::kSharding || pass->layout == nullptr || pass->layout->shards == 0) return;
  open_ = pass;
}

at::Tensor ShardCoordinator::digest_of(const SavedBuffer& buffer) const {
  const RecordingPause pause;
  const at::NoGradGuard no_gradients;
  const auto options = at::TensorOptions(at::kLong).device(parts_.device.torch_device());
  at::Tensor number = at::empty({}, options);
  parts_.device.digest(buffer.storage, ByteRange::whole(buffer.storage), number,
                       parts_.device.current_stream());
  return number;
}

bool ShardCoordinator::start(const BufferRef& buffer) {
  Pass& pass = *buffer->pass;
  const int id = buffer->id;
  if (id < 0) return false;
  const Verification::Key key{pass.key.chunk, id};
  if (mode_ == ShardMode::kComparing && pass.profiler != nullptr) {
    verification_.add(key, digest_of(*buffer));
    return false;
  }
  if (pass.layout == nullptr || !pass.layout->shard[static_cast<std::size_t>(id)]) return false;
  if (mode_ == ShardMode::kVerifying) {
    verification_.add(key, digest_of(*buffer), buffer->signature);
    return false;
  }
  if (!may_shard(*buffer)) return false;
  const RecordingPause pause;
  ShardRef shard = make_part(buffer);
  parts_.machine.asked(*shard);
  copy_part(*buffer, *shard);
  shard->answer =
      ask(*group_, {word_of({progress_of(pass), static_cast<std::uint64_t>(id), buffer->signature}),
                    buffer->bytes});
  if (buffer->kept_bytes > 0) parts_.host.set_kept_bytes(*buffer, shard->part_bytes);
  buffer->shard = shard;
  pass.asked.push_back(std::move(shard));
  ++pass.shards_asked;
  // The other ranks have normally answered when the next buffer is sharded.
  read_answers(pass, 1);
  return true;
}

bool ShardCoordinator::may_shard(const SavedBuffer& buffer) {
  switch (verification_.trust_in(buffer.signature)) {
    case Trust::kUnread:
      parts_.host.count_fallback("a buffer was not sharded: it was not verified yet");
      return false;
    case Trust::kMismatched:
    case Trust::kRootLost:
      return false;
    case Trust::kVerified:
      break;
  }
  const Pass& pass = *buffer.pass;
  const auto is_it = [&](const ShardRef& each) { return each->item == buffer.id; };
  return is_open(pass) && std::ranges::none_of(pass.asked, is_it) &&
         std::ranges::none_of(pass.shards, is_it) && pass.shards_asked < pass.layout->shards;
}

ShardCoordinator::ShardRef ShardCoordinator::make_part(const BufferRef& buffer) const {
  auto shard = std::make_shared<ShardedBuffer>();
  const TorchDevice& device = parts_.device;
  shard->buffer = buffer;
  shard->group = group_;
  shard->item = buffer->id;
  shard->pass = buffer->pass.get();
  shard->bytes = buffer->bytes;
  shard->size = static_cast<std::int64_t>(device.handed_out(buffer->bytes));
  shard->part_bytes = part_of(buffer->bytes, group_->size());
  shard->offload = buffer->action == ActionKind::kOffload;
  shard->stream = buffer->stream;
  const std::size_t all_parts = shard->part_bytes * static_cast<std::size_t>(group_->size());
  shard->part_size = static_cast<std::int64_t>(device.handed_out(shard->part_bytes));
  shard->gathered = static_cast<std::int64_t>(device.handed_out(all_parts));
  shard->part_storage = parts_.device.allocate(shard->part_bytes, *shard->stream);
  return shard;
}

void ShardCoordinator::copy_part(const SavedBuffer& buffer, ShardedBuffer& shard) const {
  const std::size_t begin = shard.part_bytes * static_cast<std::size_t>(group_->rank());
  if (begin >= buffer.bytes) return;
  const std::size_t size = std::min(shard.part_bytes, buffer.bytes - begin);
  bytes_of(shard.part_storage, 0, size).copy_(bytes_of(buffer.storage, begin, size));
}

void ShardCoordinator::read_answers(Pass& pass, std::size_t unanswered) {
  while (pass.asked.size() > unanswered) {
    const ShardRef shard = pass.asked.front();
    pass.asked.erase(pass.asked.begin());
    settle(pass, shard);
  }
}

void ShardCoordinator::settle(Pass& pass, const ShardRef& shard) {
  const RecordingPause pause;  // Reading words may run operators.
  const bool agreed = all_same(shard->answer->read(), group_->size());
  shard->answer.reset();
  const BufferRef buffer = TorchPort::buffer_of(*shard);
  if (!agreed) {
    parts_.host.count_fallback(
        "a buffer was not sharded: not every rank of the shard group saved it");
    parts_.machine.refuse(*shard);
    if (buffer == nullptr) return;
    buffer->shard.reset();
    if (buffer->kept_bytes > 0) parts_.host.set_kept_bytes(*buffer, buffer->bytes);
    if (buffer->action == ActionKind::kOffload) parts_.host.start_offload(buffer);
    return;
  }
  ++parts_.counts.buffers;
  parts_.counts.bytes += Bytes(shard->bytes);
  parts_.counts.part_bytes += Bytes(shard->part_bytes);
  if (buffer != nullptr) {
    parts_.streams.keep_until_read(*buffer, buffer->storage);
    parts_.mutex.free_outside(std::exchange(buffer->storage, c10::Storage()));
  }
  parts_.machine.split(pass, shard, shard->offload);
}

void ShardCoordinator::note_gather(const ShardedBuffer& shard) {
  ++parts_.counts.gathers;
  gathers_ = word_of({gathers_, static_cast<std::uint64_t>(shard.pass->number),
                      static_cast<std::uint64_t>(shard.pass->key.chunk),
                      static_cast<std::uint64_t>(shard.item)});
}

void ShardCoordinator::close_forward() {
  const std::shared_ptr<Pass> pass = std::exchange(open_, nullptr);
  if (pass == nullptr) return;
  const RecordingPause pause;
  const std::uint64_t progress = word_of({progress_of(*pass), pass->saved, pass->shards_asked});
  // The other ranks ask as often, and must not wait for this one.
  for (; pass->shards_asked < pass->layout->shards; ++pass->shards_asked) {
    (void)ask(*group_, {0, 0});
  }
  const std::unique_ptr<ShardGroup::Exchange> answer = ask(*group_, {progress, pass->saves});
  read_answers(*pass, 0);
  parts_.machine.order_gathers(*pass);
  if (all_same(answer->read(), group_->size())) return;
  // Its backward may read other buffers on each rank, and no gather may depend on that.
  parts_.host.count_fallback(
      "a pass was not sharded: it was not the same on all ranks of the shard group");
  while (pass->gathers_begun < pass->shards.size()) {
    parts_.machine.begin(*pass);
    ++parts_.counts.regathered;
  }
}

std::optional<Plan> ShardCoordinator::end_step(const std::vector<std::shared_ptr<Pass>>& passes,
                                               const Plan* plan) noexcept {
  std::optional<Plan> changed;
  try {
    close_forward();
    if (mode_ == ShardMode::kVerifying) changed = verified(*plan);
    if (mode_ == ShardMode::kComparing && !verification_.compare_all(*group_)) {
      parts_.host.count_fallback(kOtherSaves);
    }
  } catch (...) {
    lose_group();
  }
  mode_ = ShardMode::kNone;
  verification_.clear();
  for (const auto& pass : passes) {
    for (const ShardRef& each : pass->shards) free_unless_held(*each);
    for (const ShardRef& each : pass->asked) free_unless_held(*each);
  }
  return changed;
}

std::optional<Plan> ShardCoordinator::verified(const Plan& plan) {
  const auto mismatched = verification_.finish(*group_);
  if (!mismatched) parts_.host.count_fallback(kOtherSaves);
  if (!mismatched || mismatched->empty()) return std::nullopt;
  Unsharded rest = without_shards(plan, *mismatched);
  for (std::string& name : rest.names) {
    mismatched_.push_back(std::move(name));
    parts_.host.count_fallback(std::string("not sharded: ") + kUnequalOnRanks);
  }
  return std::move(rest.plan);
}

void ShardCoordinator::free_unless_held(ShardedBuffer& shard) noexcept {
  const bool in_parts = shard.state == ShardState::kInParts || shard.state == ShardState::kAsked;
  if (!in_parts || TorchPort::buffer_of(shard) != nullptr) return;
  try {
    parts_.machine.free_part(shard);
  } catch (...) {
    parts_.host.note_failure("dropping a saved tensor");
  }
}

void ShardCoordinator::lose_group() noexcept {
  parts_.host.note_failure("the shard group");
  open_ = nullptr;
}

std::optional<ShardTotals> ShardCoordinator::report(const ShardTotals& counts) const {
  if (group_ == nullptr && plan_ == 0 && mismatched_.empty()) return std::nullopt;
  ShardTotals totals = counts;
  totals.ranks = ranks();
  totals.mismatched = mismatched_;
  return totals;
}

}  // namespace spillway
