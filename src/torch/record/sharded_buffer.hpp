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
  kAsked,      // Whether all ranks have it is not known yet: the whole is there.
  kInParts,    // Each rank has its part.
  kGathering,  // The whole is on its way,
  kWhole,      // and there.
};

struct ShardedBuffer {
  std::weak_ptr<SavedBuffer> buffer;
  int id = -1;
  ShardState state = ShardState::kAsked;
  std::size_t bytes = 0;  // Of the whole,
  std::size_t part_bytes =
      0;  // and of a part, which is the same on all ranks: the last are padded.
  bool offload = false;
  std::shared_ptr<ShardGroup> group;
  std::unique_ptr<ShardGroup::Words> answer;
  Stream* stream = nullptr;
  c10::Storage part;  // On the device, or
  Ticket ticket;      // in a tier, or both while it is copied.
  bool in_window = false;
  c10::Storage whole;
  std::unique_ptr<ShardGroup::Gather> gather;
  int pass = 0;                   // Its number,
  std::optional<TimeMark> begun;  // and when the gather began, in a step that is traced.
};

}  // namespace spillway
