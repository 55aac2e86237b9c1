/// Times of operators in a profile, as measured and as they would be without copies beside them.
#pragma once

#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/simulate.hpp"

namespace spillway {

/// The profile with its times as they would be without copies. Those it has are of steps under
/// `plan`, whose copies slowed operators down by LinkSpeed::slows_out and slows_back.
/// Errors: as simulate().
[[nodiscard]] Profile without_slowing(const Profile& profile, const Plan& plan,
                                      const SimulateOptions& options = {});

}  // namespace spillway
