/// Finds the targets of saves. Internal; see Simulator::set_residency().
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "plan/simulate/byte_targets.hpp"
#include "plan/simulate/release_interval.hpp"
#include "plan/simulate/step_walk.hpp"

namespace spillway {

/// Releases as late as the next save allows.
class ForwardSetter final : public StepListener {
 public:
  ForwardSetter(std::int64_t budget, ChunkTargets& forward) : budget_(budget), forward_(forward) {}

  ByteLimit saved(const StepWalk& walk, const StepPosition& position, int site) override {
    const StepInterval interval = until_next_save(walk, position);
    const Releases releases =
        releases_for(interval, budget_, walk.managed_bytes(), [&](const auto& release) {
          walk.for_each_in_window([&](ItemRef each) {
            const PlannedItem& item = walk.item(each);
            const int until = each.pass == position.pass ? item.model_until
                              : walk.model_has(each)     ? std::numeric_limits<int>::max()
                                                         : -1;
            return release(item.bytes, until, std::numeric_limits<int>::max());
          });
        });
    const std::int64_t room = releases.managed_bytes + budget_ - releases.most;
    const std::int64_t target =
        std::max(releases.managed_bytes, std::min(room, releases.before - 1));
    std::int64_t& least = forward_[to_index(position.chunk)][to_index(site)];
    least = std::min(least, target);
    return {target};
  }

  ByteLimit unpacked(const StepWalk& /*walk*/, const StepPosition& /*position*/, int /*unpack*/,
                     std::int64_t /*fetched*/) override {
    return {0};
  }

 private:
  /// What will be allocated up to the next save or unpack, if nothing is released.
  [[nodiscard]] static StepInterval until_next_save(const StepWalk& walk,
                                                    const StepPosition& position) {
    const PlannedChunk& chunk = walk.chunk_of(position);
    const bool on = walk.backward_follows(position.pass);
    const int last = on ? chunk.model->end : chunk.model->backward_begins - 1;
    std::int64_t bytes = walk.bytes_with(0);
    StepInterval interval;
    for (StepPosition ahead = position; ahead.moment < last;) {
      ++ahead.moment;
      ahead.backward = ahead.moment >= chunk.model->backward_begins;
      interval.add(ahead.moment, bytes + walk.untracked_at(ahead));
      const MomentKind kind = chunk.moment(ahead.moment).kind;
      if (kind == MomentKind::kSave || kind == MomentKind::kUnpack) break;
      for (const ItemEvent& event : chunk.events_at(ahead.moment)) {
        bytes += change(walk, {position.pass, event.item}, event);
      }
    }
    return interval;
  }

  /// The change of bytes on the device by a future event.
  [[nodiscard]] static std::int64_t change(const StepWalk& walk, ItemRef what,
                                           const ItemEvent& event) {
    const PlannedItem& item = walk.item(what);
    const bool resident =
        walk.on_device(what) && (item.given_up < 0 || item.given_up >= event.moment);
    const bool anchored = item.anchor && (resident || item.entered <= event.moment);
    switch (event.kind) {
      case ItemEventKind::kAllocated:
        return item.bytes;
      case ItemEventKind::kLastForwardUse:
        if (item.anchor) return anchored ? item.bytes : 0;
        return item.managed && !resident ? -item.bytes : 0;
      case ItemEventKind::kAnchored:
        return event.moment < item.model_until ? 0 : item.bytes;
      case ItemEventKind::kGivenUp:
        return event.moment < item.model_until ? 0 : -item.bytes;
      case ItemEventKind::kFreed:
        return resident || !item.managed ? -item.bytes : 0;
    }
    return 0;
  }

  std::int64_t budget_;
  ChunkTargets& forward_;
};

}  // namespace spillway
