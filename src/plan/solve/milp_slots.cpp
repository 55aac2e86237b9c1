#include "plan/solve/milp_slots.hpp"

#include <algorithm>

#include "spillway/core/index.hpp"

namespace spillway {
namespace {

/// Divides the passes of one chunk into slots.
class SlotSplitter {
 public:
  SlotSplitter(const ChunkSpace& space, int chunk)
      : space_(space),
        chunk_(chunk),
        pieces_(space.model.end + 1),
        weight_(to_index(pieces_)),
        movable_(to_index(pieces_)) {
    for (std::size_t id = 0; id < space.buffers.size(); ++id) note(id);
    for (int piece = 1; piece < pieces_; ++piece) {
      movable_[to_index(piece)] += movable_[to_index(piece - 1)];
    }
  }

  /// Bytes that begin or end something at a moment, all moments that have some.
  void add_weights(std::vector<std::int64_t>& weights) const {
    for (const std::int64_t weight : weight_) {
      if (weight > 0) weights.push_back(weight);
    }
  }

  /// Begins a slot where the weight is at least `threshold`, which is more than 0.
  [[nodiscard]] std::vector<Slot> split(bool backward, std::int64_t threshold,
                                        const std::vector<std::int64_t>& kept) const {
    const int begin = backward ? space_.model.backward_begins : 0;
    const int end = backward ? pieces_ : space_.model.backward_begins;
    std::vector<Slot> slots;
    for (int piece = begin; piece < end; ++piece) {
      const bool split_here = piece > 0 && weight_[to_index(piece - 1)] >= threshold;
      if (slots.empty() || split_here) slots.push_back({0, chunk_, piece, piece, 0});
      slots.back().last = piece;
      slots.back().ns += space_.chunk->timeline[to_index(piece)].compute_ns;
    }
    for (Slot& slot : slots) slot.rows = rows_of(slot, kept);
    return slots;
  }

 private:
  void note(std::size_t id) {
    const BufferLife& life = space_.model.buffers[id];
    const bool stays = space_.buffers[id].count() == 1 && space_.buffers[id].keep;
    if (!life.counted || stays) return;
    const int last_forward_use = std::max(life.last_forward_use, life.saved);
    const int need = life.first_need < 0 ? life.dropped : life.first_need;
    if (last_forward_use >= need) return;
    if (last_forward_use + 1 < pieces_) movable_[to_index(last_forward_use + 1)] += life.bytes;
    if (need + 1 < pieces_) movable_[to_index(need + 1)] -= life.bytes;
    weight_[to_index(last_forward_use)] += life.bytes;
    if (life.first_need >= 0) weight_[to_index(life.first_need)] += life.bytes;
  }

  /// The piece of the peak if everything is kept, and the one if nothing is that may be moved.
  [[nodiscard]] std::vector<Slot::Row> rows_of(const Slot& slot,
                                               const std::vector<std::int64_t>& kept) const {
    int most = slot.first;
    int least = slot.first;
    const auto left = [&](int piece) { return kept[to_index(piece)] - movable_[to_index(piece)]; };
    for (int piece = slot.first + 1; piece <= slot.last; ++piece) {
      if (kept[to_index(piece)] > kept[to_index(most)]) most = piece;
      if (left(piece) > left(least)) least = piece;
    }
    std::vector<Slot::Row> rows;
    for (const int piece : {std::min(most, least), std::max(most, least)}) {
      if (rows.empty() || rows.back().piece != piece)
        rows.push_back({piece, kept[to_index(piece)]});
    }
    return rows;
  }

  const ChunkSpace& space_;
  int chunk_;
  int pieces_;
  std::vector<std::int64_t> weight_;   // By moment.
  std::vector<std::int64_t> movable_;  // By piece: bytes that may be moved.
};

}  // namespace

Slots::Slots(const std::vector<ChunkSpace>& spaces, const PassSchedule& schedule,
             const KeptBytes& kept, int wanted) {
  std::vector<SlotSplitter> splitters;
  std::vector<int> space_of_step;
  for (std::size_t i = 0; i < spaces.size(); ++i) {
    splitters.emplace_back(spaces[i], static_cast<int>(i));
  }
  std::vector<std::int64_t> weights;
  for (const PassStep& step : schedule) {
    const auto found = std::find_if(spaces.begin(), spaces.end(), [&](const ChunkSpace& space) {
      return space.chunk->chunk == step.chunk;
    });
    space_of_step.push_back(static_cast<int>(found - spaces.begin()));
    if (!step.backward) splitters[to_index(space_of_step.back())].add_weights(weights);
  }
  std::sort(weights.rbegin(), weights.rend());
  std::int64_t threshold = 1;
  if (weights.size() > to_index(wanted)) {
    // Layers are alike: of equal weights take all or none.
    threshold = weights[to_index(wanted)] + 1;
  }
  for (std::size_t step = 0; step < schedule.size(); ++step) {
    first_of_step_.push_back(count());
    const SlotSplitter& splitter = splitters[to_index(space_of_step[step])];
    for (Slot& slot : splitter.split(schedule[step].backward, threshold, kept[step])) {
      slot.step = static_cast<int>(step);
      slots_.push_back(std::move(slot));
    }
  }
  first_of_step_.push_back(count());
}

int Slots::after(int step, int moment) const {
  const auto begin = slots_.begin() + first_of_step_[to_index(step)];
  const auto end = slots_.begin() + first_of_step_[to_index(step) + 1];
  const auto found =
      std::partition_point(begin, end, [moment](const Slot& slot) { return slot.last <= moment; });
  return static_cast<int>(found - slots_.begin());
}

int Slots::before(int step, int moment) const {
  const auto begin = slots_.begin() + first_of_step_[to_index(step)];
  const auto end = slots_.begin() + first_of_step_[to_index(step) + 1];
  const auto found =
      std::partition_point(begin, end, [moment](const Slot& slot) { return slot.last < moment; });
  return static_cast<int>(found == end ? found - slots_.begin() - 1 : found - slots_.begin());
}

}  // namespace spillway
