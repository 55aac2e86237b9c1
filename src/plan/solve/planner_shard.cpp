#include "plan/solve/planner_shard.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "plan/policy/fold.hpp"

namespace spillway {
namespace {

/// A limit on the search in evaluations, not in time, so that it ends at the same point everywhere.
constexpr int kMostEvaluations = 600;
constexpr int kMostRounds = 6;

/// Buffers at the same position of all layers of a chunk, which are treated alike.
struct Kind {
  std::size_t chunk = 0;
  std::vector<std::size_t> ids;
  BufferOptions options;
  bool equal = false;
};

struct State {
  ActionKind action = ActionKind::kKeep;
  bool shard = false;
};

std::vector<Kind> kinds_of(const std::vector<ChunkSpace>& spaces, const PlannerOptions& options) {
  std::map<std::string, Kind> kinds;
  for (std::size_t chunk = 0; chunk < spaces.size(); ++chunk) {
    const ChunkSpace& space = spaces[chunk];
    for (std::size_t id = 0; id < space.buffers.size(); ++id) {
      const BufferLife& life = space.model.buffers[id];
      if (!space.decided.open[id] || !life.movable || life.bytes == 0) continue;
      const BufferOptions& may = space.buffers[id];
      const bool equal = options.equal[chunk][id];
      const Position& position = space.chunk->buffers[id].position;
      const std::string key = std::to_string(chunk) + " " + fold(position.scope).shape + " " +
                              position.saver + " " + std::to_string(position.ordinal) + " " +
                              std::to_string(life.bytes) + (equal ? " equal" : "") +
                              (may.offload ? " o" : "") + (may.recompute ? " r" : "");
      Kind& kind = kinds.try_emplace(key, Kind{chunk, {}, may, equal}).first->second;
      kind.ids.push_back(id);
    }
  }
  std::vector<Kind> all;
  for (auto& [key, kind] : kinds) all.push_back(std::move(kind));
  return all;
}

void set(const Kind& kind, State state, Choice& choice) {
  for (const std::size_t id : kind.ids) {
    choice[kind.chunk].buffers[id] = state.action;
    choice[kind.chunk].shard[id] = state.shard;
  }
}

std::vector<State> states_of(const Kind& kind) {
  std::vector<State> states = {{ActionKind::kKeep, false}};
  if (kind.equal) states.push_back({ActionKind::kKeep, true});
  if (kind.equal && kind.options.offload) states.push_back({ActionKind::kOffload, true});
  if (kind.options.offload) states.push_back({ActionKind::kOffload, false});
  if (kind.options.recompute) states.push_back({ActionKind::kRecompute, false});
  return states;
}

class ShardSearch {
 public:
  ShardSearch(Search& search, const PlannerOptions& options, std::int64_t budget)
      : search_(search),
        options_(options),
        budget_(budget),
        kinds_(kinds_of(search.evaluator().spaces(), options)) {}

  [[nodiscard]] bool has_something() const {
    return std::any_of(kinds_.begin(), kinds_.end(), [](const Kind& kind) { return kind.equal; });
  }

  /// Starts from `found` with everything sharded that may be: with any action, or only what is kept
  /// or offloaded.
  [[nodiscard]] Candidate run(const Candidate& found) {
    Choice stored = found.choice;
    for (ChunkChoice& chunk : stored) chunk.shard.assign(chunk.buffers.size(), false);
    Choice all = stored;
    for (const Kind& kind : kinds_) {
      if (!kind.equal) continue;
      set(kind, {ActionKind::kKeep, true}, all);
      for (const std::size_t id : kind.ids) stored[kind.chunk].shard[id] = true;
    }
    Candidate best = look_at(std::move(all));
    (void)take_if_better(std::move(stored), best);
    for (int round = 0; round < kMostRounds && improve(best); ++round) {
    }
    return best;
  }

 private:
  [[nodiscard]] Candidate look_at(Choice choice) {
    --left_;
    Evaluated evaluated = search_.evaluator().evaluate(choice, budget_);
    return {std::move(choice), std::move(evaluated)};
  }

  bool take_if_better(Choice choice, Candidate& best) {
    if (choice == best.choice) return false;
    Candidate found = look_at(std::move(choice));
    if (!found.evaluated.better_than(best.evaluated)) return false;
    best = std::move(found);
    return true;
  }

  /// Every kind in every state, once.
  bool improve(Candidate& best) {
    bool any = false;
    for (const Kind& kind : kinds_) {
      for (const State state : states_of(kind)) {
        if (left_ <= 0 || search_.elapsed() > 2 * options_.time_limit) return false;
        Choice choice = best.choice;
        set(kind, state, choice);
        any = take_if_better(std::move(choice), best) || any;
      }
    }
    return any;
  }

  Search& search_;
  const PlannerOptions& options_;
  std::int64_t budget_;
  std::vector<Kind> kinds_;
  int left_ = kMostEvaluations;
};

}  // namespace

void shard_what_helps(Search& search, const PlannerOptions& options, std::int64_t budget,
                      Candidate& found) {
  if (options.equal.empty() || options.shard.ranks < 2) return;
  const bool everything_kept = found.evaluated.fits() &&
                               found.evaluated.simulation.bytes_out == Bytes(0) &&
                               found.evaluated.simulation.replay_ns == 0;
  ShardSearch shards(search, options, budget);
  if (everything_kept || !shards.has_something()) return;
  Candidate sharded = shards.run(found);
  if (sharded.evaluated.better_than(found.evaluated)) found = std::move(sharded);
}

}  // namespace spillway
