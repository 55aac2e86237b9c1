#include "plan/solve/planner_moves.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "plan/policy/fold.hpp"
#include "spillway/core/index.hpp"

namespace spillway {
namespace {

std::vector<ActionKind> others(const BufferOptions& options, ActionKind now) {
  std::vector<ActionKind> kinds;
  if (options.keep && now != ActionKind::kKeep) kinds.push_back(ActionKind::kKeep);
  if (options.recompute && now != ActionKind::kRecompute) kinds.push_back(ActionKind::kRecompute);
  if (options.offload && now != ActionKind::kOffload) kinds.push_back(ActionKind::kOffload);
  return kinds;
}

std::vector<Request> others(const ValueOptions& options, Request now) {
  std::vector<Request> requests;
  if (options.replay && now != Request::kReplay) requests.push_back(Request::kReplay);
  if (options.hold && now != Request::kKeep) requests.push_back(Request::kKeep);
  if (options.offload && now != Request::kOffload) requests.push_back(Request::kOffload);
  return requests;
}

/// Nanoseconds to recompute a buffer, if the inputs of its call are available.
double replay_ns(const ChunkSpace& space, std::size_t buffer) {
  const int value = space.chunk->buffers[buffer].value;
  const int call = value < 0 ? -1 : space.chunk->values[to_index(value)].call;
  return call < 0 ? 0 : static_cast<double>(space.replay_ns[to_index(call)]);
}

/// The values that are anchors in the evaluated plan.
std::vector<std::size_t> anchored_values(const ChunkSpace& space, const ChunkPlan& plan) {
  std::vector<std::size_t> values;
  for (const Anchor& anchor : plan.anchors) {
    values.push_back(
        to_index(space.chunk->operators[to_index(anchor.call)].makes[to_index(anchor.output)]));
  }
  return values;
}

void sort_by_rank(std::vector<Move>& moves) {
  std::stable_sort(moves.begin(), moves.end(),
                   [](const Move& a, const Move& b) { return a.rank < b.rank; });
}

}  // namespace

void make(const Move& move, Choice& choice) {
  if (move.value) {
    choice[move.chunk].values[move.id] = move.request;
  } else {
    choice[move.chunk].buffers[move.id] = move.action;
  }
}

std::vector<Move> moves_against_peak(const std::vector<ChunkSpace>& spaces, const Choice& choice,
                                     const Evaluated& evaluated) {
  std::vector<Move> moves;
  const PeakLocation& peak = evaluated.simulation.peak_location;
  for (std::size_t chunk = 0; chunk < spaces.size(); ++chunk) {
    const ChunkSpace& space = spaces[chunk];
    const bool here = space.chunk->chunk == peak.pass.chunk;
    for (std::size_t id = 0; id < space.buffers.size(); ++id) {
      const BufferLife& life = space.model.buffers[id];
      const ActionKind now = choice[chunk].buffers[id];
      const bool alive = !here || (life.allocated <= peak.moment && peak.moment <= life.dropped);
      if (!life.counted || !alive) continue;
      for (const ActionKind kind : others(space.buffers[id], now)) {
        // Kept buffers first, cheapest per byte; buffers that are already moved help little.
        const double per_byte = replay_ns(space, id) / static_cast<double>(life.bytes);
        const double away = now == ActionKind::kKeep ? 0 : 1e6;
        const double cost = kind == ActionKind::kRecompute ? per_byte : 0.01;
        moves.push_back({chunk, false, id, kind, Request::kNone, away + cost});
      }
    }
    for (const std::size_t id : anchored_values(space, evaluated.plan.chunks[chunk])) {
      for (const Request request : others(space.values[id], choice[chunk].values[id])) {
        moves.push_back({chunk, true, id, ActionKind::kKeep, request, 1e5});
      }
    }
  }
  sort_by_rank(moves);
  return moves;
}

std::vector<std::vector<Move>> moves_of_all_layers(const std::vector<ChunkSpace>& spaces) {
  std::map<std::pair<std::string, ActionKind>, std::vector<Move>> by_position;
  for (std::size_t chunk = 0; chunk < spaces.size(); ++chunk) {
    const ChunkSpace& space = spaces[chunk];
    for (std::size_t id = 0; id < space.buffers.size(); ++id) {
      const BufferOptions& options = space.buffers[id];
      if (options.count() < 2) continue;
      const Position& position = space.chunk->buffers[id].position;
      const std::string key = std::to_string(chunk) + " " + fold(position.scope).shape + " " +
                              position.saver + " " + std::to_string(position.ordinal);
      const auto add = [&](bool may, ActionKind kind) {
        if (may) by_position[{key, kind}].push_back({chunk, false, id, kind, Request::kNone, 0});
      };
      add(options.keep, ActionKind::kKeep);
      add(options.offload, ActionKind::kOffload);
      add(options.recompute, ActionKind::kRecompute);
    }
  }
  std::vector<std::vector<Move>> all;
  for (const int parts : {1, 2, 4}) {
    for (const auto& [key, moves] : by_position) {
      const std::size_t size = moves.size() / static_cast<std::size_t>(parts);
      if (size < 2) continue;
      for (std::size_t first = 0; first + size <= moves.size(); first += size) {
        const auto begin = moves.begin() + static_cast<std::ptrdiff_t>(first);
        all.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(size));
      }
    }
  }
  return all;
}

std::vector<Move> moves_for_time(const std::vector<ChunkSpace>& spaces, const Choice& choice,
                                 const Evaluated& evaluated) {
  std::vector<Move> moves;
  for (std::size_t chunk = 0; chunk < spaces.size(); ++chunk) {
    const ChunkSpace& space = spaces[chunk];
    for (std::size_t id = 0; id < space.buffers.size(); ++id) {
      const ActionKind now = choice[chunk].buffers[id];
      for (const ActionKind kind : others(space.buffers[id], now)) {
        double gain = 0;
        if (now == ActionKind::kRecompute) gain += replay_ns(space, id);
        if (kind == ActionKind::kRecompute) gain -= replay_ns(space, id);
        moves.push_back({chunk, false, id, kind, Request::kNone, -gain});
      }
    }
    for (const std::size_t id : anchored_values(space, evaluated.plan.chunks[chunk])) {
      for (const Request request : others(space.values[id], choice[chunk].values[id])) {
        moves.push_back({chunk, true, id, ActionKind::kKeep, request, 0});
      }
    }
  }
  sort_by_rank(moves);
  return moves;
}

}  // namespace spillway
