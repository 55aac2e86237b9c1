/// What later passes of a recorded step had allocated that its first ones do not tell; internal.
#pragma once

#include <cstdint>
#include <vector>

#include "spillway/plan/profile.hpp"
#include "spillway/plan/schedule.hpp"

namespace spillway {

/// The moments of one recorded pass, which the schedule calls by chunk and micro-batch.
struct RecordedPass {
  int chunk = 0;
  int micro_batch = 0;
  std::vector<Moment> moments;
};

/// A profile has one pass of each chunk; how others differ (gradients are there already, and are
/// added to) the simulator estimates. The most by which a recorded pass exceeds that estimate: so
/// much of a budget is not the planner's. 0 for a profile without a timeline.
[[nodiscard]] std::int64_t unforeseen_bytes(const Profile& profile, const PassSchedule& schedule,
                                            const std::vector<RecordedPass>& passes);

}  // namespace spillway
