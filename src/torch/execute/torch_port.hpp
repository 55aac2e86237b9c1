/// The engine's port to a session: carries commands out on the streams of the device, with storages
/// of torch; internal. Under the session's lock. See engine/step_machine.hpp for what a port does.
#pragma once

#include <memory>

#include "engine/shard_machine.hpp"
#include "engine/step_machine.hpp"
#include "torch/record/pass.hpp"

namespace spillway {

class SessionCore;

class TorchPort {
 public:
  using Buffer = SavedBuffer;
  using WeakBuffer = std::weak_ptr<SavedBuffer>;
  using Pass = spillway::Pass;
  using Shard = ShardedBuffer;
  using ShardRef = std::shared_ptr<ShardedBuffer>;

  explicit TorchPort(SessionCore& core) : core_(core) {}
  TorchPort(const TorchPort&) = delete;
  TorchPort& operator=(const TorchPort&) = delete;

  [[nodiscard]] StepMachine<TorchPort>& machine() noexcept { return machine_; }
  [[nodiscard]] const StepMachine<TorchPort>& machine() const noexcept { return machine_; }
  [[nodiscard]] ShardMachine<TorchPort>& shards() noexcept { return shards_; }

  // The port of the machines.
  [[nodiscard]] static Pass& pass_of(const SavedBuffer& buffer) { return *buffer.pass; }
  [[nodiscard]] static Pass& pass_of_shard(const ShardedBuffer& shard) { return *shard.pass; }
  [[nodiscard]] static int number_of(const Pass& pass) { return pass.number; }
  [[nodiscard]] static int item_of(const SavedBuffer& buffer) { return buffer.id; }
  [[nodiscard]] static std::shared_ptr<SavedBuffer> lock(const WeakBuffer& buffer) {
    return buffer.lock();
  }
  /// Null also where the buffer has given the shard up.
  [[nodiscard]] static std::shared_ptr<SavedBuffer> buffer_of(const ShardedBuffer& shard);
  [[nodiscard]] static const GatherOrder& gather_order(const Pass& pass) {
    return pass.layout->gathers;
  }
  bool copy_out(SavedBuffer& buffer);
  bool release(SavedBuffer& buffer);
  bool adopt(SavedBuffer& buffer);
  void reload(SavedBuffer& buffer);
  bool prefetch(SavedBuffer& buffer);
  void wait(SavedBuffer& buffer, bool first);
  void used_in_place(const SavedBuffer& buffer);
  void copy_skipped(const SavedBuffer& buffer);
  void late(const SavedBuffer& buffer);
  void gather(SavedBuffer& buffer);
  [[nodiscard]] Pass* next_backward();
  [[nodiscard]] Pass* next_to_gather();
  template <typename F>
  void for_each_reload(Pass& pass, F&& f) {
    int rank = -1;
    const auto visit = [&](const WeakBuffer& each) {
      if (const auto buffer = each.lock()) f(*buffer, each, rank);
    };
    if (pass.layout != nullptr) {
      for (const ChunkLayout::Reload& each : pass.layout->reload_order) {
        rank = each.rank;
        visit(pass.buffers[static_cast<std::size_t>(each.buffer)]);
      }
      std::for_each(pass.extra.rbegin(), pass.extra.rend(), visit);
    } else {
      // The order is unknown yet; the last saved is mostly the first read.
      std::for_each(pass.buffers.rbegin(), pass.buffers.rend(), visit);
    }
  }
  [[nodiscard]] std::shared_ptr<SavedBuffer> next_to_evict(Pass& pass);
  void evicted(SavedBuffer& buffer, bool gone);
  void flush();
  void entered(const SavedBuffer& /*buffer*/) {}
  void left(const SavedBuffer& /*buffer*/) {}
  bool copy_part_out(ShardedBuffer& shard);
  void release_part(ShardedBuffer& shard);
  void begin_gather(ShardedBuffer& shard);
  void end_gather(ShardedBuffer& shard);
  void free_part(ShardedBuffer& shard);
  void close_forward();
  void late_gather();

  /// In a recording step: others than the session hold the buffer's storage in backward.
  static void note_held(const SavedBuffer& buffer);

 private:
  /// Its owner has freed or replaced the memory that was saved.
  [[nodiscard]] bool returned_to_owner(SavedBuffer& buffer);
  void note_no_room(std::size_t bytes);

  SessionCore& core_;
  StepMachine<TorchPort> machine_{*this};
  ShardMachine<TorchPort> shards_{*this, machine_};
  bool warned_no_room_ = false;
};

}  // namespace spillway
