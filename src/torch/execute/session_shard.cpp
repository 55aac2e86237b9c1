#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "spillway/core/error.hpp"
#include "spillway/plan/shard.hpp"
#include "torch/device/gather_speed.hpp"
#include "torch/execute/session_core.hpp"
#include "torch/execute/shard_digest.hpp"
#include "torch/graph/storage_copy.hpp"

namespace spillway {
namespace {

/// Whether all ranks sent the same words, and none the two zeros of a rank that stopped sharding.
bool all_same(const std::vector<std::uint64_t>& words, int ranks) {
  const std::size_t count = words.size() / static_cast<std::size_t>(ranks);
  if (words.empty() || words[0] == 0) return false;
  for (std::size_t i = count; i < words.size(); ++i) {
    if (words[i] != words[i % count]) return false;
  }
  return true;
}

/// A digest of a pass's progress: equal on all ranks that run the same operators.
std::uint64_t progress_of(const Pass& pass) {
  return word_of({static_cast<std::uint64_t>(pass.number),
                  static_cast<std::uint64_t>(pass.key.chunk),
                  static_cast<std::uint64_t>(pass.next_call - pass.calls_before_first_save)});
}

}  // namespace

void SessionCore::set_shard_group(std::shared_ptr<ShardGroup> group) {
  const std::lock_guard lock(mutex_);
  if (in_step()) throw InvalidArgument("shard_group", "a step is under way; end it first");
  sharding_.group = std::move(group);
  sharding_.verified = false;
  sharding_.speed = 0;
  if (sharding_.group != nullptr && sharding_.group->size() > 1) {
    sharding_.speed = gather_speed(*sharding_.group, device_->torch_device());
  }
}

void SessionCore::agree_on_sharding(bool verifies_now) {
  sharding_.active = false;
  sharding_.verifying = false;
  sharding_.comparing = false;
  sharding_.digests.clear();
  const bool planned = !controller_.records_next() && sharding_.digest != 0;
  if (sharding_.group == nullptr || sharding_.group->size() < 2) {
    if (planned) note_no_shard_group();
    return;
  }
  const bool compares = controller_.records_next() && options_.budget && options_.rules.plan_shards;
  const std::uint64_t wants_verification = verifies_now || !sharding_.verified ? 1 : 0;
  const std::vector<std::uint64_t> words =
      ask({planned ? sharding_.digest : 0, planned ? wants_verification : 0,
           static_cast<std::uint64_t>(machine_.limits().prefetch_window),
           compares ? std::uint64_t{1} : 0})
          ->read();
  bool same = words[0] != 0;
  std::uint64_t prefetch_window = words[2];
  sharding_.comparing = true;
  for (std::size_t i = 0; i < words.size(); i += 4) {
    same = same && words[i] == words[0];
    sharding_.verifying = sharding_.verifying || words[i + 1] != 0;
    prefetch_window = std::min(prefetch_window, words[i + 2]);
    sharding_.comparing = sharding_.comparing && words[i + 3] != 0;
  }
  if (!same && planned) {
    count_fallback(
        "a step was not sharded: a rank of the shard group recorded, or had another plan");
  }
  EngineLimits limits = machine_.limits();
  limits.shard_prefetch_window = static_cast<std::int64_t>(prefetch_window);
  machine_.set_limits(limits);
  sharding_.verifying = sharding_.verifying && same;
  sharding_.active = same && !sharding_.verifying;
}

void SessionCore::note_no_shard_group() {
  count_fallback("a step was not sharded: there is no shard group of several ranks");
  if (std::exchange(sharding_.warned, true)) return;
  TORCH_WARN(
      "[shard] the plan shards buffers, but there is no shard group of several ranks: they are "
      "kept "
      "or offloaded whole. Give the session a group (Session::set_shard_group()), or remove "
      "`shard` "
      "from the rules. This warning appears once per session.");
}

std::unique_ptr<ShardGroup::Exchange> SessionCore::ask(std::initializer_list<std::uint64_t> words) {
  const RecordingPause pause;
  const at::NoGradGuard no_gradients;
  return sharding_.group->exchange({words.begin(), words.size()});
}

void SessionCore::open_for_shards(const std::shared_ptr<Pass>& pass) {
  if (!sharding_.active || pass->layout == nullptr || pass->layout->shards == 0) return;
  pass->shards_open = true;
  sharding_.open_pass = pass;
}

void SessionCore::note_shard_digest(const SavedBuffer& buffer) {
  const RecordingPause pause;
  const at::NoGradGuard no_gradients;
  const auto options = at::TensorOptions(at::kLong).device(device_->torch_device());
  const at::Tensor number = at::empty({}, options);
  device_->digest(buffer.storage, number, device_->current_stream());
  sharding_.digests.emplace_back(Verification::Key{buffer.pass->key.chunk, buffer.id}, number);
}

bool SessionCore::start_shard(const BufferRef& buffer) {
  Pass& pass = *buffer->pass;
  const int id = buffer->id;
  if (id < 0) return false;
  if (sharding_.comparing && pass.profiler != nullptr) {
    note_shard_digest(*buffer);
    return false;
  }
  if (pass.layout == nullptr || !pass.layout->shard[static_cast<std::size_t>(id)]) return false;
  const RecordingPause pause;
  if (sharding_.verifying) {
    note_shard_digest(*buffer);
    sharding_.signatures[{pass.key.chunk, id}].insert(buffer->signature);
    return false;
  }
  if (!may_shard_now(buffer->signature)) return false;
  const auto is_it = [id](const std::shared_ptr<ShardedBuffer>& each) { return each->item == id; };
  const bool again = std::any_of(pass.asked.begin(), pass.asked.end(), is_it) ||
                     std::any_of(pass.shards.begin(), pass.shards.end(), is_it);
  if (!pass.shards_open || again || pass.shards_asked == pass.layout->shards) return false;

  const ShardGroup& group = *sharding_.group;
  auto shard = std::make_shared<ShardedBuffer>();
  shard->buffer = buffer;
  shard->group = sharding_.group;
  shard->item = id;
  shard->pass = &pass;
  shard->bytes = buffer->bytes;
  shard->size = static_cast<std::int64_t>(handed_out(buffer->bytes));
  shard->part_bytes = part_of(buffer->bytes, group.size());
  shard->offload = buffer->action == ActionKind::kOffload;
  shard->stream = buffer->stream;
  const std::size_t all_parts = shard->part_bytes * static_cast<std::size_t>(group.size());
  shard->part_size = static_cast<std::int64_t>(handed_out(shard->part_bytes));
  shard->gathered = static_cast<std::int64_t>(handed_out(all_parts));
  shard->part_storage = device_->allocate(shard->part_bytes, *shard->stream);
  shards_.asked(*shard);
  const std::size_t begin = shard->part_bytes * static_cast<std::size_t>(group.rank());
  if (begin < buffer->bytes) {
    const std::size_t size = std::min(shard->part_bytes, buffer->bytes - begin);
    bytes_of(shard->part_storage, 0, size).copy_(bytes_of(buffer->storage, begin, size));
  }
  shard->answer =
      ask({word_of({progress_of(pass), static_cast<std::uint64_t>(id), buffer->signature}),
           buffer->bytes});
  if (buffer->kept_bytes > 0) set_kept_bytes(*buffer, shard->part_bytes);
  buffer->shard = shard;
  pass.asked.push_back(std::move(shard));
  ++pass.shards_asked;
  // The other ranks have normally answered when the next buffer is sharded.
  answer_shards(pass, 1);
  return true;
}

bool SessionCore::may_shard_now(Signature signature) {
  const auto found = sharding_.trust.find(signature);
  if (found != sharding_.trust.end()) return found->second == Trust::kVerified;
  count_fallback("a buffer was not sharded: it was not verified yet");
  if (sharding_.asked.insert(signature).second) sharding_.verified = false;
  return false;
}

void SessionCore::answer_shards(Pass& pass, std::size_t unanswered) {
  while (pass.asked.size() > unanswered) {
    const std::shared_ptr<ShardedBuffer> shard = pass.asked.front();
    pass.asked.erase(pass.asked.begin());
    settle_shard(pass, shard);
  }
}

void SessionCore::settle_shard(Pass& pass, const std::shared_ptr<ShardedBuffer>& shard) {
  const RecordingPause pause;  // Reading words may run operators.
  const bool agreed = all_same(shard->answer->read(), sharding_.group->size());
  shard->answer.reset();
  const BufferRef buffer = TorchPort::buffer_of(*shard);
  if (!agreed) {
    count_fallback("a buffer was not sharded: not every rank of the shard group saved it");
    shards_.refuse(*shard);
    if (buffer == nullptr) return;
    buffer->shard.reset();
    if (buffer->kept_bytes > 0) set_kept_bytes(*buffer, buffer->bytes);
    if (buffer->action == ActionKind::kOffload) start_offload(buffer);
    return;
  }
  ++step_.shard.buffers;
  step_.shard.bytes += Bytes(shard->bytes);
  step_.shard.part_bytes += Bytes(shard->part_bytes);
  if (buffer != nullptr) {
    streams_.keep_until_read(*buffer, buffer->storage);
    mutex_.free_outside(std::exchange(buffer->storage, c10::Storage()));
  }
  shards_.split(pass, shard, shard->offload);
}

void SessionCore::stop_sharding(Pass& pass) {
  if (!std::exchange(pass.shards_open, false)) return;
  // The other ranks ask as often, and must not wait for this one.
  for (; pass.shards_asked < pass.layout->shards; ++pass.shards_asked) (void)ask({0, 0});
}

void SessionCore::close_forward() {
  const std::shared_ptr<Pass> pass = std::exchange(sharding_.open_pass, nullptr);
  if (pass == nullptr) return;
  const RecordingPause pause;
  const std::uint64_t progress = word_of({progress_of(*pass), pass->saved, pass->shards_asked});
  stop_sharding(*pass);
  const std::unique_ptr<ShardGroup::Exchange> answer = ask({progress, pass->saves});
  answer_shards(*pass, 0);
  shards_.order_gathers(*pass);
  if (all_same(answer->read(), sharding_.group->size())) return;
  // Its backward may read other buffers on each rank, and no gather may depend on that.
  count_fallback("a pass was not sharded: it was not the same on all ranks of the shard group");
  while (pass->gathers_begun < pass->shards.size()) {
    shards_.begin(*pass);
    ++step_.shard.regathered;
  }
}

void SessionCore::end_sharding() noexcept {
  try {
    close_forward();
    if (sharding_.verifying) finish_shard_verification();
    if (sharding_.comparing) finish_comparison();
  } catch (...) {
    lose_shard_group();
  }
  sharding_.active = false;
  sharding_.verifying = false;
  sharding_.comparing = false;
  sharding_.digests.clear();
  sharding_.signatures.clear();
  const auto free_unless_held = [this](const std::shared_ptr<ShardedBuffer>& shard) {
    const bool in_parts =
        shard->state == ShardState::kInParts || shard->state == ShardState::kAsked;
    if (!in_parts || TorchPort::buffer_of(*shard) != nullptr) return;
    try {
      shards_.free_part(*shard);
    } catch (...) {
      note_failure("dropping a saved tensor");
    }
  };
  for (const auto& pass : passes_) {
    std::ranges::for_each(pass->shards, free_unless_held);
    std::ranges::for_each(pass->asked, free_unless_held);
  }
}

void SessionCore::lose_shard_group() noexcept {
  note_failure("the shard group");
  sharding_.open_pass = nullptr;
}

}  // namespace spillway
