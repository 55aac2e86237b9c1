#include "plan/solve/planner_space.hpp"

#include <algorithm>

#include "spillway/core/index.hpp"

namespace spillway {
namespace {

class SpaceBuilder {
 public:
  explicit SpaceBuilder(const Weights& weights)
      : weights_(weights),
        chunk_(weights.chunk()),
        obstacles_(weights.obstacles()),
        has_link_(weights.profile().link.out > 0),
        read_outside_(chunk_.values.size()) {
    space_.chunk = &chunk_;
    space_.model = model_of(chunk_, weights.profile().granularity);
    space_.decided = decide(chunk_, weights.rules(), weights.matcher());
    space_.values.resize(chunk_.values.size());
    space_.windows.resize(chunk_.operators.size());
    space_.reads.resize(chunk_.operators.size());
  }

  [[nodiscard]] ChunkSpace run() && {
    find_reads();
    for (const BufferProfile& buffer : chunk_.buffers) {
      space_.buffers.push_back(options_of(buffer));
    }
    find_windows();
    return std::move(space_);
  }

 private:
  [[nodiscard]] BufferOptions options_of(const BufferProfile& buffer) {
    const bool possible = obstacles_.of_buffer(buffer).empty();
    const BufferLife& life = space_.model.buffers[to_index(buffer.id)];
    if (!space_.decided.open[to_index(buffer.id)]) {
      const Decision& decision = space_.decided.plan.decisions[to_index(buffer.id)];
      ActionKind kind = decision.action.kind;
      if (kind == ActionKind::kRecompute && !possible) kind = decision.fallback;
      return {kind == ActionKind::kKeep, kind == ActionKind::kOffload,
              kind == ActionKind::kRecompute};
    }
    if (!life.movable || life.bytes == 0 || !life_is_known(life)) return {};
    const bool gone_in_forward = life.last_forward_use <= space_.model.backward_begins;
    const bool needed_later = life.first_need < 0 || life.last_forward_use < life.first_need;
    return {true, has_link_ && gone_in_forward && needed_later,
            possible && needed_later && !leaves_its_layer(buffer)};
  }

  /// Replays must not continue from layer to layer: what leads from one to the next is an anchor.
  [[nodiscard]] bool leaves_its_layer(const BufferProfile& buffer) const {
    const int call = chunk_.values[to_index(buffer.value)].call;
    return chunk_.operators[to_index(call)].layer >= 0 && read_outside_[to_index(buffer.value)];
  }

  [[nodiscard]] static bool life_is_known(const BufferLife& life) {
    return life.allocated <= life.last_forward_use && life.saved <= life.dropped;
  }

  void find_reads() {
    for (std::size_t call = 0; call < chunk_.operators.size(); ++call) {
      std::vector<int> reads = chunk_.operators[call].reads;
      std::sort(reads.begin(), reads.end());
      reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
      for (const int id : reads) {
        if (chunk_.values[to_index(id)].call < 0) continue;
        const bool crosses = weights_.crosses(id, static_cast<int>(call));
        space_.reads[call].push_back({id, crosses});
        if (crosses) read_outside_[to_index(id)] = true;
      }
      const CallLife& life = space_.model.calls[call];
      space_.replay_ns.push_back(life.begins < 0 ? chunk_.operators[call].device_ns : life.ns);
    }
  }

  /// From the last call to the first: readers of a value follow its maker.
  void find_windows() {
    for (int call = static_cast<int>(chunk_.operators.size()) - 1; call >= 0; --call) {
      if (obstacles_.of_call(call).empty()) start_with_buffers(call);
      const CallWindow& window = space_.windows[to_index(call)];
      if (window.latest < 0) continue;
      for (const CallRead& read : space_.reads[to_index(call)]) pass_on(read, window);
    }
  }

  void start_with_buffers(int call) {
    for (const int id : chunk_.operators[to_index(call)].makes) {
      const int buffer = chunk_.values[to_index(id)].buffer;
      if (buffer < 0 || !space_.buffers[to_index(buffer)].recompute) continue;
      const BufferLife& life = space_.model.buffers[to_index(buffer)];
      if (life.first_need < 0) continue;
      space_.windows[to_index(call)].widen({life.first_need, life.first_need, life.dropped});
    }
  }

  void pass_on(const CallRead& read, const CallWindow& window) {
    const ValueProfile& value = chunk_.values[to_index(read.value)];
    CallWindow& maker = space_.windows[to_index(value.call)];
    if (value.buffer >= 0) {
      if (!space_.buffers[to_index(value.buffer)].recompute) return;
      maker.widen(window);
      return;
    }
    ValueOptions& options = space_.values[to_index(read.value)];
    const Preference preference = weights_.of(read.value).preference;
    const bool may_replay = preference == Preference::kReplay || preference == Preference::kSlow ||
                            preference == Preference::kByBytes;
    if (!read.crosses && may_replay) {
      options.replay = true;
      maker.widen(window);
    }
    if (read.crosses || preference != Preference::kReplay) {
      options.hold = true;
      const std::optional<Bytes>& least = weights_.rules().limits.min_size;
      options.offload = has_link_ && !(least && value.size < *least);
    }
  }

  const Weights& weights_;
  const ChunkProfile& chunk_;
  const Obstacles& obstacles_;
  bool has_link_;                   // Not measured without host memory.
  std::vector<bool> read_outside_;  // By value: in another layer, or group of layers.
  ChunkSpace space_;
};

}  // namespace

void CallWindow::widen(const CallWindow& other) {
  earliest = earliest < 0 ? other.earliest : std::min(earliest, other.earliest);
  latest = std::max(latest, other.latest);
  released = std::max(released, other.released);
}

ChunkSpace space_of(const Weights& weights) { return SpaceBuilder(weights).run(); }

ChunkChoice choose_everywhere(const ChunkSpace& space, ActionKind wanted) {
  ChunkChoice choice;
  choice.values.resize(space.values.size(), Request::kNone);
  for (const BufferOptions& options : space.buffers) {
    const bool may = (wanted == ActionKind::kOffload && options.offload) ||
                     (wanted == ActionKind::kRecompute && options.recompute);
    if (may) {
      choice.buffers.push_back(wanted);
    } else if (options.keep) {
      choice.buffers.push_back(ActionKind::kKeep);
    } else {
      choice.buffers.push_back(options.offload ? ActionKind::kOffload : ActionKind::kRecompute);
    }
  }
  return choice;
}

}  // namespace spillway
