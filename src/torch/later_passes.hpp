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
  std::vector<Bytes> sizes;  // Of its buffers; empty: those of the chunk.
};

/// The bytes beside saved buffers that another pass of the chunk had, by the chunk's moments; where
/// that pass had no such moment, the chunk's.
[[nodiscard]] std::vector<std::int64_t> other_bytes(const ChunkProfile& chunk,
                                                    const std::vector<Moment>& pass,
                                                    Bytes granularity);

/// A profile has one or two passes of each chunk; others may differ. The most by which a recorded
/// pass exceeds that estimate where it would exceed `budget` if everything were kept: so much of it
/// is not the planner's. A plan that has more somewhere than if everything were kept, for a replay,
/// may still exceed it. 0 for a profile without a timeline.
[[nodiscard]] std::int64_t unforeseen_bytes(const Profile& profile, const PassSchedule& schedule,
                                            const std::vector<RecordedPass>& passes, Bytes budget);

/// What to leave of a budget where sizes change from pass to pass, as rows of experts do. A session
/// sees that a buffer has grown when it is saved; what its layer made of it before was there
/// already. So: the most by which a layer of a recorded pass was larger than in another, twice,
/// since later steps go further than the few that were recorded, or than another layer of its kind,
/// if that is more. 0 if only one pass of each chunk was recorded, or if all have the same sizes.
[[nodiscard]] Bytes unsteady_bytes(const Profile& profile, const std::vector<RecordedPass>& passes);

}  // namespace spillway
