#include "spillway/plan/compute_times.hpp"

#include <cmath>

#include "plan/profile/timeline.hpp"
#include "plan/simulate/simulator.hpp"

namespace spillway {

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
