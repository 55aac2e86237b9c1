/// A chunk's recorded pass and what a plan does with it, laid out for walking through the pass
/// moment by moment.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/profile/pass_model.hpp"
#include "plan/recompute/replay_jobs.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/shard.hpp"

namespace spillway {

/// A saved buffer, or, after all of those, an anchor.
struct PlannedItem {
  std::int64_t bytes = 0;
  ActionKind action{};
  std::int64_t part = 0;   ///< Bytes of this rank's part, if it is sharded; else 0.
  std::int64_t whole = 0;  ///< Then: its bytes once it is gathered.
  bool anchor = false;
  bool counted = false;  ///< As BufferLife says; never for anchors, as long as the model has them.
  bool managed = false;  ///< The session manages it.
  int allocated = -1;    ///< Moments, as in BufferLife and ReplayPlan. -1: never.
  int entered = -1;      ///< The session has it from here on: its first save, or as an anchor.
  int model_until = -1;  ///< The model's last reference ends here.
  int given_up = -1;     ///< Of recomputed ones.
  int needed = -1;       ///< Backward, or a replay in it, first reads it here. -1: never.
  int dropped = -1;      ///< By autograd: from here on no bytes count as its own.
  int freed = -1;        ///< The session has released it.
};

/// In the order in which they are handled at a moment; the moment's own action follows those of the
/// model.
enum class ItemEventKind { kAllocated, kLastForwardUse, kAnchored, kGivenUp, kFreed };

struct ItemEvent {
  int moment = 0;
  ItemEventKind kind{};
  int item = 0;
};

struct PlannedChunk {
  const PassModel* model = nullptr;
  ReplayPlan replays;
  const ChunkPlan* plan = nullptr;
  std::vector<PlannedItem> items;
  std::vector<ItemEvent> events;  ///< In order.
  std::vector<int> first_event;   ///< By moment, and one more.
  std::vector<int> reload_order;  ///< Offloaded items, each once, as a session queues them.
  GatherOrder gathers;            ///< By item.
  /// Untracked bytes that remain while other passes run between forward and backward,
  std::int64_t between_bytes = 0;
  /// and after backward, for later passes of the chunk to use: gradients. Not negative.
  std::int64_t persistent_bytes = 0;
  /// By moment: by how much the untracked bytes of a later pass are smaller.
  std::vector<std::int64_t> grown_bytes;

  [[nodiscard]] std::span<const ItemEvent> events_at(int moment) const {
    const auto first = static_cast<std::size_t>(first_event[static_cast<std::size_t>(moment)]);
    const auto last = static_cast<std::size_t>(first_event[static_cast<std::size_t>(moment) + 1]);
    return {events.data() + first, last - first};
  }
  [[nodiscard]] const Moment& moment(int at) const {
    return model->chunk->timeline[static_cast<std::size_t>(at)];
  }
};

/// Keeps pointers to the model and to the plan. `limits`: those of the plan. `ranks`: those that
/// share what is sharded.
/// Errors: as replays_of().
[[nodiscard]] PlannedChunk planned(const PassModel& model, const ChunkPlan& plan,
                                   const Limits& limits, int ranks = 1);

}  // namespace spillway
