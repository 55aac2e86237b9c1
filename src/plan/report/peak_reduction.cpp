#include "spillway/plan/peak_reduction.hpp"

#include <utility>

#include "spillway/plan/rules.hpp"

namespace spillway {
namespace {

Plan without_windows(Plan plan) {
  for (ChunkPlan& chunk : plan.chunks) chunk.residency = {};
  plan.cap.reset();
  plan.limits.offload_window = plan.limits.prefetch_window = Bytes(0);
  return plan;
}

/// The profile as if all passes were later ones: what the first pass of a model allocates
/// permanently exists before a step.
Profile of_later_steps(Profile profile) {
  for (ChunkProfile& chunk : profile.chunks) {
    if (!chunk.later_untracked_bytes) continue;
    for (std::size_t i = 0; i < chunk.timeline.size(); ++i) {
      chunk.timeline[i].untracked_bytes = (*chunk.later_untracked_bytes)[i];
    }
    chunk.later_untracked_bytes.reset();
  }
  return profile;
}

}  // namespace

std::optional<double> PeakReduction::reached(Bytes baseline, Bytes peak) const {
  if (most() == Bytes(0)) return std::nullopt;
  const auto less = static_cast<double>(baseline.count()) - static_cast<double>(peak.count());
  return less / static_cast<double>(most().count());
}

std::optional<PeakReduction> peak_reduction(const Profile& recorded, const Plan& plan,
                                            const SimulateOptions& options) {
  if (!has_times(recorded) || !made_for(plan, recorded)) return std::nullopt;
  const Profile profile = of_later_steps(recorded);
  SimulateOptions wanted;
  wanted.schedule = options.schedule;
  wanted.shard = options.shard;
  return PeakReduction{simulate(profile, make_plan(profile, {}), wanted).peak,
                       simulate(profile, without_windows(plan), wanted).peak};
}

}  // namespace spillway
