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

void Simulator::limit_pending_release(Plan& plan) const {
  plan.max_pending_release = plan.max_prefetch = std::nullopt;
  const Bytes layer = offloaded_of_a_layer(profile_, plan);
  if (layer == Bytes(0)) return;
  const Simulation free = run(plan);
  const auto longest = static_cast<double>(free.step_ns) * (1 + kSameStepTime);
  const auto costs_nothing = [&] {
    const Simulation found = run(plan);
    return static_cast<double>(found.step_ns) <= longest && found.peak <= free.peak;
  };
  for (const unsigned percent : kPercent) {
    const Bytes limit(layer.count() / 100 * percent);
    plan.max_pending_release = plan.max_prefetch = limit;
    if (costs_nothing()) return;
    // Usually one of the two limits costs the time.
    plan.max_prefetch = std::nullopt;
    if (costs_nothing()) {
      for (const unsigned more : kPercent) {
        if (more <= percent) continue;
        plan.max_prefetch = Bytes(layer.count() / 100 * more);
        if (costs_nothing()) return;
      }
      plan.max_prefetch = std::nullopt;
      return;
    }
  }
  plan.max_pending_release = plan.max_prefetch = std::nullopt;
}

}  // namespace spillway
