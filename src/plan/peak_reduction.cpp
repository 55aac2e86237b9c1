#include "spillway/plan/peak_reduction.hpp"

#include <utility>

#include "spillway/plan/rules.hpp"

namespace spillway {
namespace {

Plan without_windows(Plan plan) {
  for (ChunkPlan& chunk : plan.chunks) {
    chunk.forward_allowance.clear();
    chunk.backward_allowance.clear();
  }
  plan.most_leaving = plan.most_ahead = std::nullopt;
  plan.limits.in_flight = plan.limits.ahead = Bytes(0);
  return plan;
}

}  // namespace

std::optional<double> PeakReduction::reached(Bytes unaided, Bytes peak) const {
  if (most() == Bytes(0)) return std::nullopt;
  const auto less = static_cast<double>(unaided.count()) - static_cast<double>(peak.count());
  return less / static_cast<double>(most().count());
}

std::optional<PeakReduction> peak_reduction(const Profile& profile, const Plan& plan,
                                            const SimulateOptions& options) {
  if (!has_times(profile) || !made_for(plan, profile)) return std::nullopt;
  SimulateOptions wanted;
  wanted.schedule = options.schedule;
  wanted.shard = options.shard;
  return PeakReduction{simulate(profile, make_plan(profile, {}), wanted).peak,
                       simulate(profile, without_windows(plan), wanted).peak};
}

}  // namespace spillway
