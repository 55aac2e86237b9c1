#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "torch/execute/session_core.hpp"
#include "torch/graph/storage_copy.hpp"

namespace spillway {

// All ranks gather in one order: when a gather begins depends on the plan, on the order of passes
// and on what backward reads, never on what else a rank has on its device. So a rank without memory
// for one cannot skip it, as it skips prefetching an offloaded buffer: unpacking throws, the other
// ranks wait, and the next unpack of this rank begins that gather.

void SessionCore::all_gather_buffer(SavedBuffer& buffer) {
  Pass& pass = *buffer.pass;
  const std::shared_ptr<ShardedBuffer> shard = buffer.shard;
  close_forward();
  const auto found = std::find(pass.shards.begin(), pass.shards.end(), shard);
  const auto position = static_cast<std::size_t>(found - pass.shards.begin());
  if (pass.gathers_begun <= position) ++step_.shard.late_gathers;
  while (pass.gathers_begun <= position) begin_gather(pass);
  pass.gathers_wanted = std::max(pass.gathers_wanted, position + 1);
  begin_due_gathers(pass, buffer.id);
  prefetch_gathers(pass);
  end_gather(*shard);
  buffer.storage = std::exchange(shard->whole, c10::Storage());
  buffer.ready = true;
}

void SessionCore::prefetch_gathers(Pass& pass) {
  std::size_t prefetched = 0;
  const auto begin_some = [&](Pass& of) {
    for (std::size_t i = of.gathers_wanted; i < of.gathers_begun; ++i)
      prefetched += of.shards[i]->bytes;
    while (of.gathers_begun < of.shards.size()) {
      const std::size_t bytes = of.shards[of.gathers_begun]->bytes;
      if (prefetched + bytes > sharding_.prefetch_window) return false;
      close_forward();
      begin_gather(of);
      prefetched += bytes;
    }
    return true;
  };
  if (!begin_some(pass)) return;
  if (Pass* const next = next_to_gather()) (void)begin_some(*next);
}

Pass* SessionCore::next_to_gather() const {
  const std::optional<PassKey> next = next_backward();
  if (!next) return nullptr;
  for (const auto& pass : passes_) {
    if (pass->key == *next && !pass->backward_begun && pass != sharding_.open_pass)
      return pass.get();
  }
  return nullptr;
}

void SessionCore::begin_first_gather(Pass& pass) {
  if (pass.gathers_begun > 0 || pass.shards.empty()) return;
  close_forward();
  begin_gather(pass);
}

void SessionCore::begin_due_gathers(Pass& pass, int id) {
  if (id < 0 || pass.shards.empty()) return;
  const GatherOrder& order = pass.layout->gathers;
  const int due = order.due[static_cast<std::size_t>(id)];
  if (due == 0) return;
  while (pass.gathers_begun < pass.shards.size()) {
    const auto next = static_cast<std::size_t>(pass.shards[pass.gathers_begun]->id);
    if (order.position[next] > due) break;
    close_forward();
    begin_gather(pass);
  }
  if (static_cast<std::size_t>(due) <= order.position.size()) return;
  if (Pass* const next = next_to_gather()) begin_first_gather(*next);
}

void SessionCore::begin_gather(Pass& pass) {
  ShardedBuffer& shard = *pass.shards[pass.gathers_begun];
  const auto ranks = static_cast<std::size_t>(shard.group->size());
  c10::Storage whole = device_->allocate(shard.part_bytes * ranks, *shard.stream);
  if (!shard.part) {
    c10::Storage part = device_->allocate(shard.part_bytes, *shard.stream);
    auto* const data = static_cast<std::byte*>(part.mutable_data());
    engine_->reload(shard.ticket, {data, shard.part_bytes}, *shard.stream);
    shard.part = std::move(part);
    count_allocated(shard.part_bytes);
    engine_->flush();
    step_.bytes_back += Bytes(shard.part_bytes);
  }
  // Compute continues while the part is reloaded.
  device_->beside(*shard.stream, [&](Stream& side) {
    if (shard.ticket && shard.ticket.reloading()) {
      engine_->ready(shard.ticket, side);
      device_->catch_up(side);
    }
    shard.begun = mark_if_traced();
    const RecordingPause pause;
    const at::NoGradGuard no_gradients;
    shard.gather = shard.group->gather(bytes_of(whole), bytes_of(shard.part));
  });
  shard.whole = std::move(whole);
  count_allocated(shard.bytes);
  shard.state = ShardState::kGathering;
  ++pass.gathers_begun;
  ++step_.shard.gathers;
  const BufferRef buffer = shard.buffer.lock();
  if (buffer == nullptr || buffer->shard.get() != &shard) abandon_gather(shard);
}

void SessionCore::end_gather(ShardedBuffer& shard) {
  Stream& stream = device_->current_stream();
  clock_.uses_stream();
  waits_.time(WaitCause::kGather, stream, [&] {
    const RecordingPause pause;
    shard.gather->wait();
  });
  trace_gather(shard);
  shard.gather.reset();
  shard.whole.set_nbytes(shard.bytes);  // Without the padding of the last parts.
  shard.state = ShardState::kWhole;
  free_part(shard);
}

void SessionCore::trace_gather(ShardedBuffer& shard) {
  std::optional<TimeMark> begun = std::exchange(shard.begun, std::nullopt);
  std::optional<TimeMark> end = begun ? mark_if_traced() : std::nullopt;
  if (!end || tracing_ == nullptr) return;
  tracing_->gathered(shard.pass, shard.id, shard.bytes, std::move(*begun), std::move(*end));
}

void SessionCore::abandon_gather(ShardedBuffer& shard) noexcept {
  try {
    end_gather(shard);
  } catch (...) {
    lose_shard_group();
  }
  mutex_.free_outside(std::exchange(shard.whole, c10::Storage()));
  count_freed(shard.bytes);
}

void SessionCore::free_part(ShardedBuffer& shard) {
  if (shard.in_window) {
    (void)sharding_.window.take([&](const auto& each) { return each.get() == &shard; });
    shard.in_window = false;
  }
  if (shard.ticket) {
    shard.ticket = Ticket();
    device_->catch_up(*shard.stream);
  }
  if (!shard.part) return;
  mutex_.free_outside(std::exchange(shard.part, c10::Storage()));
  count_freed(shard.part_bytes);
}

void SessionCore::detach_shard(SavedBuffer& buffer) {
  const std::shared_ptr<ShardedBuffer> shard = std::exchange(buffer.shard, nullptr);
  switch (shard->state) {
    case ShardState::kAsked:
    case ShardState::kWhole:
      return;
    case ShardState::kGathering:
      return abandon_gather(*shard);
    case ShardState::kInParts:
      // Until the step ends another rank may gather it.
      if (buffer.pass->over) free_part(*shard);
      return;
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
  for (const auto& pass : passes_) {
    for (const auto& shard : pass->shards) {
      if (shard->state != ShardState::kInParts || !shard->buffer.expired()) continue;
      try {
        free_part(*shard);
      } catch (...) {
        note_failure("dropping a saved tensor");
      }
    }
  }
}

void SessionCore::lose_shard_group() noexcept {
  note_failure("the shard group");
  sharding_.open_pass = nullptr;
}

}  // namespace spillway
