#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "plan/simulate/simulator.hpp"
#include "plan/simulate/slower_link.hpp"

namespace spillway {
namespace {

/// The largest window that is chosen; only limits set larger ones.
constexpr Bytes kLargestWindow{1ULL << 30U};
/// Of the step: less is not worth memory.
constexpr double kSameTime = 0.002;
/// Of what lies between the least that the plan can reach and what windows of a layer hold: where
/// to look first,
constexpr std::array kPermille = {0U, 30U, 60U, 120U, 250U, 500U, 750U};
/// and how often to halve what is left between the last that was too slow and the first that was
/// not.
constexpr int kHalvings = 3;

/// The largest sum, over layers, of a layer's offloaded bytes, and of those that are reloaded
/// without a replay.
struct LayerBytes {
  Bytes out;
  Bytes back;
  bool shards = false;
};

LayerBytes of_a_layer(const Profile& profile, const Plan& plan, int ranks) {
  LayerBytes most;
  for (std::size_t i = 0; i < profile.chunks.size(); ++i) {
    std::map<int, LayerBytes> by_layer;
    const auto add = [&](int layer, Bytes bytes, const Action& action) {
      const bool shards = action.shard && ranks > 1;
      const bool offloads = action.kind == ActionKind::kOffload;
      LayerBytes& sum = by_layer[layer];
      if (offloads) sum.out += shards ? Bytes(part_of(bytes.count(), ranks)) : bytes;
      if (offloads && !shards) sum.back += bytes;
      most.out = std::max(most.out, sum.out);
      most.back = std::max(most.back, sum.back);
      most.shards = most.shards || shards;
    };
    const ChunkPlan& chunk = plan.chunks[i];
    for (const BufferProfile& buffer : profile.chunks[i].buffers) {
      const auto id = static_cast<std::size_t>(buffer.id);
      add(buffer.layer, buffer.size, chunk.decisions[id].action);
    }
    for (const Anchor& anchor : chunk.anchors) {
      const OperatorProfile& call =
          profile.chunks[i].operators[static_cast<std::size_t>(anchor.call)];
      if (anchor.action.shard) add(call.layer, anchor.bytes, anchor.action);
    }
  }
  return most;
}

/// Sets lists that take no longer than the constant windows `windows`, but for a share `slowdown`
/// of the step, if there are some.
bool set_free_residency(const Simulator& simulator, const Limits& windows, double slowdown,
                        Plan& plan) {
  Limits nothing;
  nothing.offload_window = nothing.prefetch_window = Bytes(0);
  const auto with = [&](const Limits& constant) {
    Plan under = plan;
    simulator.set_residency_of_windows(constant, under);
    return simulator.run(under);
  };
  const Simulation constant = with(windows);
  const Simulation least = with(nothing);
  if (least.peak >= constant.peak) return false;
  const auto longest = static_cast<double>(constant.step_ns) * (1 + slowdown);
  std::optional<std::pair<ByteTargets, Plan>> best;
  const auto try_with = [&](unsigned permille) {
    const Bytes more((constant.peak - least.peak).count() / 1000 * permille);
    Plan tight = plan;
    ByteTargets targets = simulator.set_residency(least.peak + more, tight);
    const Simulation found = simulator.run(tight);
    if (found.peak >= constant.peak || static_cast<double>(found.step_ns) > longest) return false;
    best = {std::move(targets), std::move(tight)};
    return true;
  };
  unsigned slow = 0;
  for (const unsigned permille : kPermille) {
    if (!try_with(permille)) {
      slow = permille;
      continue;
    }
    unsigned fast = permille;
    for (int i = 0; i < kHalvings && fast - slow > 1; ++i) {
      const unsigned middle = (slow + fast) / 2;
      (try_with(middle) ? fast : slow) = middle;
    }
    auto& [targets, found] = *best;
    simulator.limit_pending_release(targets, found);
    plan = std::move(found);
    plan.cap.reset();  // Larger steps need more, and there is no budget.
    return true;
  }
  return false;
}

}  // namespace

void set_windows(const Profile& profile, Plan& plan, const PassSchedule& schedule,
                 const ShardModel& shard, const Limits& given) {
  const auto has_lists = [](const ChunkPlan& chunk) { return !chunk.residency.empty(); };
  if (std::any_of(plan.chunks.begin(), plan.chunks.end(), has_lists)) return;
  const LayerBytes layer = of_a_layer(profile, plan, shard.ranks);
  if (layer.out == Bytes(0) && !layer.shards) return;
  const bool any_given = plan.limits.offload_window || plan.limits.prefetch_window ||
                         given.offload_window || given.prefetch_window;
  if (!any_given) {
    Limits windows;
    windows.offload_window = std::min(kLargestWindow, layer.out);
    windows.prefetch_window = std::min(kLargestWindow, layer.back);
    // All ranks gather in one order: no window of theirs may follow from times.
    if (has_times(profile) && !layer.shards) {
      const std::optional<double> slowdown = plan.limits.slowdown;
      const Profile assumed = slowdown ? profile : with_slower_link(profile, kSlowLink);
      const Simulator simulator(assumed, schedule);
      if (set_free_residency(simulator, windows, slowdown.value_or(kSameTime), plan)) return;
    }
    plan.limits.offload_window = windows.offload_window;
    plan.limits.prefetch_window = windows.prefetch_window;
  }
  if (!has_times(profile)) return;
  Simulator(profile, schedule, shard).set_residency_of_windows(given, plan);
}

}  // namespace spillway
