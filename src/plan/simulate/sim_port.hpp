/// The engine's port to a simulated step: counts bytes of device and host, and tells a listener,
/// which adds times. Internal; see engine/step_machine.hpp for what a port does.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "engine/shard_machine.hpp"
#include "engine/step_machine.hpp"
#include "plan/simulate/planned_chunk.hpp"
#include "plan/simulate/step_listener.hpp"
#include "spillway/core/index.hpp"
#include "spillway/plan/schedule.hpp"

namespace spillway {

struct SimPass;
struct SimShard;

/// An item of a pass that runs. Freed until it enters.
struct SimBuffer : BufferRecord {
  SimBuffer() { state = BufferState::kFreed; }

  SimPass* pass = nullptr;  // From its entry on.
  SimShard* shard = nullptr;
  int id = -1;
  bool copied = false;  // It has host memory.
  bool released = false;
  signed char hidden = 0;  // Times its bytes in SimPort::hidden_bytes().
};

struct SimShard : ShardRecord {
  SimBuffer* buffer = nullptr;
  bool copied = false;  // Its part has host memory.
};

struct SimPass : PassRecord {
  PassStep key;
  const PlannedChunk* chunk = nullptr;
  int number = 0;
  int moment = 0;  // The one it has come to.
  std::vector<SimBuffer> items;
  std::deque<SimShard> sharded;
  std::vector<SimShard*> asked;   // To shard as soon as the other ranks have answered.
  std::vector<SimShard*> shards;  // In the order of all-gathers.
  std::size_t next_job = 0;
  std::size_t next_cached = 0;
  std::int64_t cached = 0;
  bool ended = false;
};

class SimPort {
 public:
  using Buffer = SimBuffer;
  using WeakBuffer = SimBuffer*;
  using Pass = SimPass;
  using Shard = SimShard;
  using ShardRef = SimShard*;

  /// Keeps references.
  SimPort(const PassSchedule& schedule, StepListener& listener, std::int64_t host,
          std::size_t passes);
  SimPort(const SimPort&) = delete;
  SimPort& operator=(const SimPort&) = delete;

  [[nodiscard]] StepMachine<SimPort>& machine() noexcept { return machine_; }
  [[nodiscard]] const StepMachine<SimPort>& machine() const noexcept { return machine_; }
  [[nodiscard]] ShardMachine<SimPort>& shards() noexcept { return shards_; }

  [[nodiscard]] std::vector<SimPass>& passes() noexcept { return passes_; }
  [[nodiscard]] const std::vector<SimPass>& passes() const noexcept { return passes_; }
  [[nodiscard]] SimPass* find(const PassStep& wanted);
  /// Its index among the passes that have begun, or behind them.
  [[nodiscard]] int number_of(const PassStep& wanted) const;

  // Events.
  SimPass& begin_pass(const PassStep& key, const PlannedChunk& chunk);
  /// The session has the item from here on, and does with it what is planned.
  void enter(SimPass& pass, int id);
  /// A replay will recompute it.
  void discard(SimBuffer& buffer);
  void freed(SimPass& pass, int id);
  void set_hidden(SimPass& pass, int id, int hidden);

  StepPosition now;
  std::size_t step = 0;      // In the schedule.
  std::int64_t fetched = 0;  // Bytes, by the current unpack.

  [[nodiscard]] const PlannedItem& item(const SimBuffer& buffer) const {
    return buffer.pass->chunk->items[to_index(buffer.id)];
  }
  [[nodiscard]] bool model_has(const SimPass& pass, int id) const {
    return pass.moment < pass.chunk->items[to_index(id)].model_until;
  }
  /// On the device and in neither the managed nor the untracked bytes, less what is in both.
  [[nodiscard]] std::int64_t hidden_bytes() const noexcept { return hidden_bytes_; }
  [[nodiscard]] bool found_no_room() const noexcept { return found_no_room_; }
  [[nodiscard]] std::int64_t host_peak() const noexcept { return host_peak_; }
  [[nodiscard]] std::int64_t bytes_out() const noexcept { return bytes_out_; }
  [[nodiscard]] std::int64_t bytes_back() const noexcept { return bytes_back_; }
  [[nodiscard]] std::int64_t bytes_gathered() const noexcept { return bytes_gathered_; }

  // The port of the machines.
  [[nodiscard]] static SimPass& pass_of(const SimBuffer& buffer) { return *buffer.pass; }
  [[nodiscard]] static SimPass& pass_of_shard(const SimShard& shard) { return *shard.buffer->pass; }
  [[nodiscard]] static int number_of(const SimPass& pass) { return pass.number; }
  [[nodiscard]] static int item_of(const SimBuffer& buffer) { return buffer.id; }
  [[nodiscard]] static SimBuffer* lock(SimBuffer* buffer) {
    return buffer->state == BufferState::kFreed ? nullptr : buffer;
  }
  [[nodiscard]] static SimBuffer* buffer_of(SimShard& shard) { return lock(shard.buffer); }
  [[nodiscard]] static const GatherOrder& gather_order(const SimPass& pass) {
    return pass.chunk->gathers;
  }
  bool copy_out(SimBuffer& buffer);
  bool release(SimBuffer& buffer);
  bool adopt(const SimBuffer& buffer) const { return model_has(*buffer.pass, buffer.id); }
  void reload(SimBuffer& buffer);
  bool prefetch(SimBuffer& buffer);
  void wait(SimBuffer& buffer, bool first);
  void used_in_place(const SimBuffer& /*buffer*/) {}
  void copy_skipped(const SimBuffer& /*buffer*/) {}
  void late(const SimBuffer& buffer) { fetched += item(buffer).bytes; }
  void gather(SimBuffer& buffer) { shards_.gather(buffer.shard); }
  [[nodiscard]] SimPass* next_backward();
  [[nodiscard]] SimPass* next_to_gather() { return next_backward(); }
  template <typename F>
  void for_each_reload(SimPass& pass, F&& f) {
    int rank = 0;
    for (const int id : pass.chunk->reload_order) {
      SimBuffer& buffer = pass.items[to_index(id)];
      if (buffer.state != BufferState::kFreed) f(buffer, &buffer, rank);
      ++rank;
    }
  }
  [[nodiscard]] static SimBuffer* next_to_evict(const SimPass& /*pass*/) { return nullptr; }
  void evicted(const SimBuffer& /*buffer*/, bool /*gone*/) {}
  void flush() { listener_.hands_over(); }
  void entered(SimBuffer& buffer);
  void left(SimBuffer& buffer);
  bool copy_part_out(SimShard& shard);
  void release_part(SimShard& shard);
  void begin_gather(SimShard& shard);
  void end_gather(SimShard& shard);
  void free_part(SimShard& shard);
  void close_forward();
  void late_gather() {}

 private:
  [[nodiscard]] static ItemRef ref(const SimBuffer& buffer) {
    return {buffer.pass->number, buffer.id};
  }
  [[nodiscard]] bool take_host(std::int64_t bytes);
  void start_shard(SimBuffer& buffer);
  void answer_shards(SimPass& pass, std::size_t unanswered);

  const PassSchedule& schedule_;
  StepListener& listener_;
  std::int64_t host_limit_;
  StepMachine<SimPort> machine_{*this};
  ShardMachine<SimPort> shards_{*this, machine_};
  std::vector<SimPass> passes_;  // Those that have begun. Their addresses do not change.
  SimPass* open_ = nullptr;      // The pass whose forward runs, or ran last.
  std::int64_t hidden_bytes_ = 0;
  std::int64_t host_bytes_ = 0;
  std::int64_t host_peak_ = 0;
  bool found_no_room_ = false;
  std::int64_t bytes_out_ = 0;
  std::int64_t bytes_back_ = 0;
  std::int64_t bytes_gathered_ = 0;
};

}  // namespace spillway
