/// Memory of later passes of a recording step that its first passes do not show; internal.
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

/// The untracked bytes that another pass of the chunk had, by the chunk's moments; where
/// that pass had no such moment, the chunk's.
[[nodiscard]] std::vector<std::int64_t> untracked_bytes(const ChunkProfile& chunk,
                                                        const std::vector<Moment>& pass,
                                                        Bytes granularity);

/// A profile has one or two passes of each chunk; others may differ. Returns the largest excess of
/// a profiled pass over that estimate where it would exceed `budget` if everything were kept: the
/// plan may not use that part of the budget. A plan that needs more somewhere than if everything
/// were kept, for a replay, may still exceed the budget. 0 for a profile without a timeline.
[[nodiscard]] std::int64_t unpredicted_bytes(const Profile& profile, const PassSchedule& schedule,
                                             const std::vector<RecordedPass>& passes, Bytes budget);

}  // namespace spillway
