#include "plan/solve/planner_result.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "spillway/core/index.hpp"
#include "spillway/core/numbers.hpp"

namespace spillway {
namespace {

/// Buffers, then anchors, that were reloaded in the simulated step; by the number of the chunk.
std::set<std::pair<int, int>> reloaded_items(const Simulation& simulation) {
  std::set<std::pair<int, int>> found;
  for (const SimulatedSpan& span : simulation.spans) {
    if (span.work == SimulatedWork::kCopyBack) found.insert({span.pass.chunk, span.buffer});
  }
  return found;
}

int value_of(const ChunkProfile& chunk, const Anchor& anchor) {
  return chunk.operators[to_index(anchor.call)].makes[to_index(anchor.output)];
}

}  // namespace

void keep_resident_buffers(Search& search, std::int64_t budget, Candidate& found) {
  const Simulation traced = search.evaluator().simulator().run(found.evaluated.plan, {}, true);
  const std::set<std::pair<int, int>> back = reloaded_items(traced);
  Choice choice = found.choice;
  const std::vector<ChunkSpace>& spaces = search.evaluator().spaces();
  for (std::size_t i = 0; i < spaces.size(); ++i) {
    const ChunkPlan& plan = found.evaluated.plan.chunks[i];
    const int number = spaces[i].chunk->chunk;
    for (std::size_t id = 0; id < plan.decisions.size(); ++id) {
      const bool offloaded = choice[i].buffers[id] == ActionKind::kOffload;
      const bool stays = offloaded && !back.contains({number, static_cast<int>(id)});
      const bool needed = spaces[i].model.buffers[id].first_need >= 0;
      if (stays && needed && spaces[i].buffers[id].keep) {
        choice[i].buffers[id] = ActionKind::kKeep;
      }
    }
    for (std::size_t id = 0; id < plan.anchors.size(); ++id) {
      Request& request = choice[i].values[to_index(value_of(*spaces[i].chunk, plan.anchors[id]))];
      const int item = static_cast<int>(plan.decisions.size() + id);
      if (request == Request::kOffload && !back.contains({number, item})) request = Request::kKeep;
    }
  }
  if (choice == found.choice) return;
  Evaluated evaluated = search.evaluator().evaluate(choice, budget);
  const bool as_good = evaluated.excess <= found.evaluated.excess &&
                       evaluated.simulation.step_ns <= found.evaluated.simulation.step_ns;
  if (as_good) found = {std::move(choice), std::move(evaluated)};
}

void add_reasons(const Search& search, const Candidate& found, Plan& plan) {
  const bool waits = found.evaluated.simulation.waits.release_ns > 0 ||
                     found.evaluated.simulation.waits.reload_ns > 0;
  const std::vector<ChunkSpace>& spaces = search.evaluator().spaces();
  for (std::size_t i = 0; i < spaces.size(); ++i) {
    for (Decision& decision : plan.chunks[i].decisions) {
      if (!spaces[i].decided.open[to_index(decision.buffer)]) continue;
      switch (decision.action.kind) {
        case ActionKind::kKeep:
          decision.reason = kKeptByPlanner;
          break;
        case ActionKind::kOffload:
          decision.reason = waits ? "planner: offload" : "planner: offload, hidden behind compute";
          break;
        case ActionKind::kRecompute: {
          const int value = spaces[i].chunk->buffers[to_index(decision.buffer)].value;
          const int call = spaces[i].chunk->values[to_index(value)].call;
          const double ms = static_cast<double>(spaces[i].replay_ns[to_index(call)]) / 1e6;
          decision.reason = "planner: recompute, " + with_decimals(ms, 2) + " ms for " +
                            to_string(decision.bytes);
          break;
        }
      }
      if (decision.action.shard) decision.reason += ", a part on each rank";
    }
  }
}

std::string gap_text(double gap) {
  return "at most " + with_decimals(std::max(gap, 0.0) * 100, 1) + " % above any plan of this kind";
}

std::string infeasible_text(const Search& search, const Candidate& smallest, Bytes budget) {
  const Simulation& simulation = smallest.evaluated.simulation;
  const PeakLocation& peak = simulation.peak_location;
  std::string text = "no plan fits " + to_string(budget) + ": the smallest peak is " +
                     to_string(simulation.peak) + " (" +
                     (peak.scope.empty() ? "outside of all scopes" : peak.scope) + ", " +
                     peak.what + (peak.pass.backward ? " backward" : " forward") + ")";
  std::int64_t other = 0;
  std::int64_t pinned = 0;
  for (const ChunkSpace& space : search.evaluator().spaces()) {
    if (space.chunk->chunk != peak.pass.chunk) continue;
    other = space.chunk->timeline[to_index(peak.moment)].untracked_bytes;
    for (std::size_t id = 0; id < space.buffers.size(); ++id) {
      const BufferLife& life = space.model.buffers[id];
      const bool alive = life.allocated < peak.moment && peak.moment <= life.dropped;
      const bool closed = life.counted && life.movable && !space.decided.open[id];
      if (alive && closed && space.buffers[id].keep) pinned += life.bytes;
    }
  }
  if (pinned > 0) {
    text += "; rules and [limits] min_size keep " +
            to_string(Bytes(static_cast<std::uint64_t>(pinned))) +
            " there: leave it to the planner";
  }
  if (other > 0) {
    text += "; " + to_string(Bytes(static_cast<std::uint64_t>(other))) +
            " there is what autograd does not save (intermediate values, gradients, workspaces): "
            "a smaller micro-batch or shorter sequences lower it";
  } else {
    text += "; a smaller micro-batch or shorter sequences lower it";
  }
  return text;
}

}  // namespace spillway
