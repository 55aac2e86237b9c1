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

/// The bytes beside saved buffers that another pass of the chunk had, by the chunk's moments; where
/// that pass had no such moment, the chunk's.
[[nodiscard]] std::vector<std::int64_t> untracked_bytes(const ChunkProfile& chunk,
                                                        const std::vector<Moment>& pass,
                                                        Bytes granularity);

/// A profile has one or two passes of each chunk; others may differ. The most by which a recorded
/// pass exceeds that estimate where it would exceed `budget` if everything were kept: so much of it
/// is not the planner's. A plan that has more somewhere than if everything were kept, for a replay,
/// may still exceed it. 0 for a profile without a timeline.
[[nodiscard]] std::int64_t unpredicted_bytes(const Profile& profile, const PassSchedule& schedule,
                                             const std::vector<RecordedPass>& passes, Bytes budget);

}  // namespace spillway
