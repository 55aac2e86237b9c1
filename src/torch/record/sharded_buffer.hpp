/// A saved buffer of which this rank holds a part; internal. Guarded by the session's lock.
#pragma once

#include <cstddef>
#include <memory>

#include <c10/core/Storage.h>

#include "engine/records.hpp"
#include "spillway/core/stream.hpp"
#include "spillway/torch/shard_group.hpp"
#include "spillway/transfer/ticket.hpp"
#include "torch/record/event_log.hpp"

namespace spillway {

struct Pass;
struct SavedBuffer;

struct ShardedBuffer : ShardRecord {
  std::weak_ptr<SavedBuffer> buffer;
  Pass* pass = nullptr;        // It lives as long as its shards are used.
  std::size_t bytes = 0;       // Of the whole buffer.
  std::size_t part_bytes = 0;  // Of one part, equal on all ranks: the last parts are padded.
  bool offload = false;
  std::shared_ptr<ShardGroup> group;
  std::unique_ptr<ShardGroup::Exchange> answer;
  Stream* stream = nullptr;
  c10::Storage part_storage;  // On the device; empty once released.
  Ticket ticket;              // Of an offloaded part.
  c10::Storage whole;         // While it is gathered.
  std::unique_ptr<ShardGroup::Gather> gather;
  EventLog::Begun begun;  // When the gather began; only in a traced step.
};

}  // namespace spillway
