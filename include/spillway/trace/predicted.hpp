/// The events of a simulated step, for a trace.
#pragma once

#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/simulate.hpp"
#include "spillway/trace/trace.hpp"

namespace spillway {

/// `simulation` must have been made from both, with `trace`.
[[nodiscard]] StepEvents predicted_events(const Simulation& simulation, const Profile& profile,
                                          const Plan& plan);

}  // namespace spillway
