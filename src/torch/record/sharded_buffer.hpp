/// A saved buffer of which this rank holds a part; internal. Guarded by the session's lock.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include <c10/core/Storage.h>

#include "spillway/core/stream.hpp"
#include "spillway/torch/shard_group.hpp"
#include "spillway/transfer/ticket.hpp"
#include "torch/device/torch_device.hpp"

namespace spillway {

struct SavedBuffer;

enum class ShardState {
  kAsked,      // Not known yet whether all ranks have saved it: the whole buffer is kept.
  kInParts,    // Each rank has its part.
  kGathering,  // The all-gather is under way.
  kWhole,      // The whole buffer is on the device.
};

struct ShardedBuffer {
  std::weak_ptr<SavedBuffer> buffer;
  int id = -1;
  ShardState state = ShardState::kAsked;
  std::size_t bytes = 0;       // Of the whole buffer.
  std::size_t part_bytes = 0;  // Of one part, equal on all ranks: the last parts are padded.
  bool offload = false;
  std::shared_ptr<ShardGroup> group;
  std::unique_ptr<ShardGroup::Exchange> answer;
  Stream* stream = nullptr;
  c10::Storage part;  // On the device; empty once released.
  Ticket ticket;      // Of an offloaded part.
  bool in_window = false;
  c10::Storage whole;
  std::unique_ptr<ShardGroup::Gather> gather;
  int pass = 0;                   // Number of the pass in its step.
  std::optional<TimeMark> begun;  // When the gather began; only in a traced step.
};

}  // namespace spillway
