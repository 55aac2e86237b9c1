#include <algorithm>
#include <array>
#include <set>

#include "plan/simulate/simulator.hpp"

namespace spillway {
namespace {

/// Of the step: a limit that costs less is taken.
constexpr double kSameStepTime = 0.001;
/// Of what a layer offloads, in percent.
constexpr std::array kPercent = {50U, 100U, 150U, 200U, 300U, 400U, 600U, 800U, 1200U};

/// On average.
Bytes offloaded_of_a_layer(const Profile& profile, const Plan& plan) {
  std::uint64_t bytes = 0;
  std::set<int> layers;
  for (std::size_t i = 0; i < profile.chunks.size(); ++i) {
    for (const BufferProfile& buffer : profile.chunks[i].buffers) {
      const auto id = static_cast<std::size_t>(buffer.id);
      if (plan.chunks[i].decisions[id].action.kind != ActionKind::kOffload) continue;
      bytes += buffer.size.count();
      layers.insert(buffer.layer);
    }
  }
  return Bytes(bytes / std::max<std::size_t>(layers.size(), 1));
}

}  // namespace

void Simulator::limit_pending_release(ByteTargets& targets, Plan& plan) const {
  const Bytes layer = offloaded_of_a_layer(profile_, plan);
  if (layer == Bytes(0)) return;
  const Simulation free = run(plan);
  const auto longest = static_cast<double>(free.step_ns) * (1 + kSameStepTime);
  const auto costs_nothing = [&](std::int64_t pending_release, std::int64_t prefetch) {
    ByteTargets limited = targets;
    limited.pending_release = pending_release;
    limited.prefetch = prefetch;
    Plan tried = plan;
    (void)set_residency(limited, tried);
    const Simulation found = run(tried);
    if (static_cast<double>(found.step_ns) > longest || found.peak > free.peak) return false;
    targets = std::move(limited);
    plan = std::move(tried);
    return true;
  };
  const auto percent_of_layer = [&](unsigned percent) {
    return EngineLimits::count(Bytes(layer.count() / 100 * percent));
  };
  for (std::size_t i = 0; i < kPercent.size(); ++i) {
    const std::int64_t limit = percent_of_layer(kPercent[i]);
    if (costs_nothing(limit, limit)) return;
    // Usually one of the two limits costs the time.
    if (!costs_nothing(limit, EngineLimits::kNone)) continue;
    for (std::size_t more = i + 1; more < kPercent.size(); ++more) {
      if (costs_nothing(limit, percent_of_layer(kPercent[more]))) return;
    }
    return;
  }
}

}  // namespace spillway
