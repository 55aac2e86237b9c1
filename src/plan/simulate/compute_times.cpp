#include "spillway/plan/compute_times.hpp"

#include <cmath>

#include "plan/simulate/simulator.hpp"

namespace spillway {

void add_up_times(ChunkProfile& chunk) {
  chunk.forward_ns = 0;
  chunk.backward_ns = 0;
  std::int64_t now = 0;
  bool backward = false;
  for (const Moment& moment : chunk.timeline) {
    now += moment.compute_ns;
    (backward ? chunk.backward_ns : chunk.forward_ns) += moment.compute_ns;
    backward = backward || moment.kind == MomentKind::kBackwardBegins;
    if (moment.kind == MomentKind::kCallBegins) {
      chunk.operators[static_cast<std::size_t>(moment.index)].device_ns = -now;
    } else if (moment.kind == MomentKind::kCallEnds) {
      chunk.operators[static_cast<std::size_t>(moment.index)].device_ns += now;
    }
  }
}

Profile without_slowing(const Profile& profile, const Plan& plan, const SimulateOptions& options) {
  require_made_for(plan, profile);
  const LinkSpeed& link = profile.link;
  if (link.slows_out.value_or(0) <= 0 && link.slows_back.value_or(0) <= 0) return profile;
  const Simulator simulator(profile, options.schedule, options.shard);
  const AloneTimes alone = simulator.times_alone(plan, options.windows);
  Profile unslowed = profile;
  for (std::size_t i = 0; i < unslowed.chunks.size(); ++i) {
    ChunkProfile& chunk = unslowed.chunks[i];
    for (std::size_t moment = 0; moment < chunk.timeline.size(); ++moment) {
      chunk.timeline[moment].compute_ns = std::llround(alone[i][moment]);
    }
    add_up_times(chunk);
  }
  return unslowed;
}

}  // namespace spillway
