#include <utility>

#include <ATen/core/grad_mode.h>

#include "torch/execute/session_core.hpp"
#include "torch/execute/torch_port.hpp"
#include "torch/graph/storage_copy.hpp"

namespace spillway {

std::shared_ptr<SavedBuffer> TorchPort::buffer_of(const ShardedBuffer& shard) {
  std::shared_ptr<SavedBuffer> buffer = shard.buffer.lock();
  if (buffer != nullptr && buffer->shard.get() != &shard) buffer.reset();
  return buffer;
}

void TorchPort::gather(SavedBuffer& buffer) {
  shards_.gather(buffer.shard);  // The other ranks need this one's part, whatever it reads itself.
  (void)adopt(buffer);
}

Pass* TorchPort::next_to_gather() {
  Pass* const next = next_backward();
  return next != nullptr && !core_.sharding_.is_open(*next) ? next : nullptr;
}

bool TorchPort::copy_part_out(ShardedBuffer& shard) {
  const auto* const data = static_cast<const std::byte*>(shard.part_storage.data());
  std::optional<Ticket> ticket = core_.engine_->offload({data, shard.part_bytes}, *shard.stream);
  if (!ticket) {
    note_no_room(shard.part_bytes);
    return false;
  }
  shard.ticket = std::move(*ticket);
  core_.step_.bytes_out += Bytes(shard.part_bytes);
  core_.log_.copied_out(shard.pass->number, shard.item, shard.ticket.id());
  return true;
}

void TorchPort::release_part(ShardedBuffer& shard) {
  core_.log_.wait(WaitCause::kRelease, *shard.stream, [&] {
    core_.engine_->release(shard.ticket, *shard.stream);
    core_.device_->catch_up(*shard.stream);
  });
  core_.mutex_.free_outside(std::exchange(shard.part_storage, c10::Storage()));
}

void TorchPort::begin_gather(ShardedBuffer& shard) {
  const auto ranks = static_cast<std::size_t>(shard.group->size());
  c10::Storage whole = core_.device_->allocate(shard.part_bytes * ranks, *shard.stream);
  if (!shard.part_storage) {
    c10::Storage part = core_.device_->allocate(shard.part_bytes, *shard.stream);
    auto* const data = static_cast<std::byte*>(part.mutable_data());
    core_.engine_->reload(shard.ticket, {data, shard.part_bytes}, *shard.stream);
    shard.part_storage = std::move(part);
    core_.engine_->flush();
    core_.step_.bytes_back += Bytes(shard.part_bytes);
  }
  // Compute continues while the part is reloaded.
  core_.device_->beside(*shard.stream, [&](Stream& side) {
    if (shard.ticket && shard.ticket.reloading()) {
      core_.engine_->ready(shard.ticket, side);
      core_.device_->catch_up(side);
    }
    shard.begun = core_.log_.begin_work();
    const RecordingPause pause;
    const at::NoGradGuard no_gradients;
    shard.gather = shard.group->gather(bytes_of(whole), bytes_of(shard.part_storage));
  });
  shard.whole = std::move(whole);
  core_.sharding_.note_gather(shard);
}

void TorchPort::end_gather(ShardedBuffer& shard) {
  const std::shared_ptr<SavedBuffer> buffer = buffer_of(shard);
  try {
    Stream& stream = core_.device_->current_stream();
    core_.log_.wait(WaitCause::kGather, stream, [&] {
      const RecordingPause pause;
      shard.gather->wait();
    });
  } catch (...) {
    if (buffer != nullptr) throw;
    core_.sharding_.lose_group();  // Nobody reads it here.
  }
  core_.log_.end_work(shard.begun, StepLog::Work::Kind::kGather, shard.pass->number, shard.item,
                      Bytes(shard.bytes));
  shard.gather.reset();
  c10::Storage whole = std::exchange(shard.whole, c10::Storage());
  if (buffer == nullptr) return core_.mutex_.free_outside(std::move(whole));
  whole.set_nbytes(shard.bytes);  // Without the padding of the last parts.
  buffer->storage = std::move(whole);
}

void TorchPort::free_part(ShardedBuffer& shard) {
  if (shard.ticket) {
    shard.ticket = Ticket();
    core_.device_->catch_up(*shard.stream);
  }
  c10::Storage part = std::exchange(shard.part_storage, c10::Storage());
  if (part) core_.mutex_.free_outside(std::move(part));
}

void TorchPort::close_forward() { core_.sharding_.close_forward(); }

void TorchPort::late_gather() { ++core_.step_.shard.late_gathers; }

}  // namespace spillway
