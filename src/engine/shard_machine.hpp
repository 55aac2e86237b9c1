/// The policy for sharded buffers: when a rank's part is copied out and released, and when
/// all-gathers begin. Beside StepMachine, for the same ports.
///
/// All ranks gather in one order: when a gather begins depends on the plan, on the order of passes
/// and on what backward reads, never on what else a rank has on its device. So a rank without
/// memory for one cannot skip it, as it skips prefetching an offloaded buffer: the port throws, the
/// other ranks wait, and the next event of that pass on this rank begins that gather. So a backward
/// that failed must be repeated before that of another pass.
///
/// Besides those of StepMachine a port has the types Shard (from ShardRecord) and ShardRef (as a
/// pointer to one), its Pass has `shards`, ShardRefs of what is sharded, and:
///   const GatherOrder& gather_order(const Pass&)   by item; as plans have it
///   Pass& pass_of_shard(const Shard&)
///   X buffer_of(Shard&)               the buffer, or null if it was freed; X as a pointer
///   bool copy_part_out(Shard&)        false: there is no room
///   void release_part(Shard&)         after its copy
///   void begin_gather(Shard&)         reloads the part first, if that is away
///   void end_gather(Shard&)           compute waits for it; throws only if the buffer is there
///   void free_part(Shard&)            nobody needs it any more
///   void close_forward()              ranks agree on what the forward that ran last has sharded
///   Pass* next_to_gather()            as next_backward(), if its forward is closed
///   void late_gather()                a gather begins when its buffer is needed
///
/// Threads and errors: as StepMachine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "engine/step_machine.hpp"

namespace spillway {

template <typename Port>
class ShardMachine {
 public:
  using Buffer = typename Port::Buffer;
  using Pass = typename Port::Pass;
  using Shard = typename Port::Shard;
  using ShardRef = typename Port::ShardRef;

  ShardMachine(Port& port, StepMachine<Port>& machine) : port_(port), machine_(machine) {}

  /// This rank's part was copied within the device; whether all ranks have saved it is not known.
  void asked(const Shard& shard) { machine_.add_bytes(shard.part_size); }

  /// All ranks have saved it. `offload`: the plan offloads the parts.
  void split(Pass& pass, ShardRef shard, bool offload) {
    shard->state = ShardState::kInParts;
    pass.shards.push_back(shard);
    if (const auto buffer = port_.buffer_of(*shard)) {
      log(Command::kSplit, *shard);
      machine_.split(*buffer);
    }
    if (offload) copy_part_out(std::move(shard));
  }

  /// Not all ranks have saved it.
  void refuse(Shard& shard) { free_part(shard); }

  /// The forward of the pass is over: orders its gathers.
  void order_gathers(Pass& pass) const {
    const auto& position = port_.gather_order(pass).position;
    std::sort(pass.shards.begin(), pass.shards.end(), [&](const auto& a, const auto& b) {
      return position[static_cast<std::size_t>(a->item)] <
             position[static_cast<std::size_t>(b->item)];
    });
  }

  /// After StepMachine::begin_backward(). If it fails, begin_due() goes on with it.
  void begin_backward(Pass& pass) {
    release_parts_of_others(pass);
    begin_first(pass);
    prefetch(pass);
    pass.gathers_started = true;
  }

  /// Backward reads an item of the pass, sharded or not.
  void begin_due(Pass& pass, int item) {
    if (!pass.gathers_started) begin_backward(pass);
    if (item < 0 || pass.shards.empty()) return;
    const auto& order = port_.gather_order(pass);
    const int due = order.due[static_cast<std::size_t>(item)];
    if (due == 0) return;
    while (pass.gathers_begun < pass.shards.size()) {
      const auto next = static_cast<std::size_t>(pass.shards[pass.gathers_begun]->item);
      if (order.position[next] > due) break;
      port_.close_forward();
      begin(pass);
    }
    if (static_cast<std::size_t>(due) <= order.position.size()) return;
    if (Pass* const next = port_.next_to_gather()) begin_first(*next);
  }

  /// Backward needs the whole buffer of a shard that is in parts, or being gathered.
  void gather(ShardRef shard) {
    port_.close_forward();
    Pass& pass = port_.pass_of_shard(*shard);
    const auto found = std::find(pass.shards.begin(), pass.shards.end(), shard);
    const auto number = static_cast<std::size_t>(found - pass.shards.begin());
    if (pass.gathers_begun <= number) port_.late_gather();
    while (pass.gathers_begun <= number) begin(pass);
    pass.gathers_wanted = std::max(pass.gathers_wanted, number + 1);
    begin_due(pass, shard->item);
    prefetch(pass);
    end(*shard);
    if (const auto buffer = port_.buffer_of(*shard)) machine_.gathered(*buffer);
  }

  /// Begins the next gather of the pass.
  void begin(Pass& pass) {
    const ShardRef shard = pass.shards[pass.gathers_begun];
    const bool away = shard->part == PartState::kAway;
    port_.begin_gather(*shard);
    log(Command::kGather, *shard);
    if (away) machine_.add_bytes(shard->part_size);
    if (away) shard->part = PartState::kHere;
    shard->state = ShardState::kGathering;
    ++pass.gathers_begun;
    if (const auto buffer = port_.buffer_of(*shard)) {
      machine_.gather_begins(*buffer, shard->gathered);
    } else {
      end(*shard);  // For the other ranks alone.
    }
  }

  /// The buffer of the shard is dropped.
  /// `over`: its step has ended, so no other rank gathers it any more.
  void drop(Shard& shard, bool over) {
    switch (shard.state) {
      case ShardState::kAsked:
      case ShardState::kWhole:
        return;
      case ShardState::kGathering:
        return end(shard);
      case ShardState::kInParts:
        if (over) free_part(shard);
        return;
    }
  }

  /// The memory of the part, wherever it is.
  void free_part(Shard& shard) {
    if (shard.part == PartState::kGone) return;
    if (shard.part == PartState::kCopying) take_out(shard);
    if (shard.part != PartState::kAway) machine_.add_bytes(-shard.part_size);
    shard.part = PartState::kGone;
    port_.free_part(shard);
  }

 private:
  void log(Command command, const Shard& shard) {
    machine_.log(command, port_.pass_of_shard(shard), shard.item);
  }

  void copy_part_out(ShardRef shard) {
    if (!port_.copy_part_out(*shard)) return;
    log(Command::kCopyPartOut, *shard);
    shard->part = PartState::kCopying;
    pending_ += shard->part_size;
    window_.push_back(std::move(shard));
    while (pending_ > machine_.limits().shard_offload_window) release_part(0);
  }

  /// The one at that position of the window. If the port throws, nothing has changed.
  void release_part(std::size_t position) {
    const ShardRef shard = window_[position];
    port_.release_part(*shard);
    log(Command::kReleasePart, *shard);
    window_.erase(window_.begin() + static_cast<std::ptrdiff_t>(position));
    pending_ -= shard->part_size;
    machine_.add_bytes(-shard->part_size);
    shard->part = PartState::kAway;
  }

  /// Those of all passes but this one, whose parts are used where they are. The newest first.
  void release_parts_of_others(const Pass& pass) {
    for (std::size_t i = window_.size(); i-- > 0;) {
      if (&port_.pass_of_shard(*window_[i]) != &pass) release_part(i);
    }
  }

  void take_out(const Shard& shard) {
    const auto is_it = [&](const ShardRef& each) { return &*each == &shard; };
    const auto found = std::find_if(window_.begin(), window_.end(), is_it);
    if (found == window_.end()) return;
    window_.erase(found);
    pending_ -= shard.part_size;
  }

  void begin_first(Pass& pass) {
    if (pass.gathers_begun > 0 || pass.shards.empty()) return;
    port_.close_forward();
    begin(pass);
  }

  void prefetch(Pass& pass) {
    std::int64_t prefetched = 0;
    if (!begin_some(pass, prefetched)) return;
    if (Pass* const next = port_.next_to_gather()) (void)begin_some(*next, prefetched);
  }

  bool begin_some(Pass& pass, std::int64_t& prefetched) {
    for (std::size_t i = pass.gathers_wanted; i < pass.gathers_begun; ++i) {
      prefetched += pass.shards[i]->size;
    }
    while (pass.gathers_begun < pass.shards.size()) {
      const std::int64_t bytes = pass.shards[pass.gathers_begun]->size;
      if (prefetched + bytes > machine_.limits().shard_prefetch_window) return false;
      port_.close_forward();
      begin(pass);
      prefetched += bytes;
    }
    return true;
  }

  void end(Shard& shard) {
    if (shard.state == ShardState::kWhole) return;
    port_.end_gather(shard);
    log(Command::kEndGather, shard);
    shard.state = ShardState::kWhole;
    free_part(shard);
  }

  Port& port_;
  StepMachine<Port>& machine_;
  std::deque<ShardRef> window_;  // Parts that are copied out and not released.
  std::int64_t pending_ = 0;     // Their bytes.
};

}  // namespace spillway
