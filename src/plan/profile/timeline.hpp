/// From the moments of a recorded pass to the timeline of its profile; internal.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "spillway/plan/profile.hpp"

namespace spillway {

/// Puts `moments` into the chunk, whose operators, buffers and sites are there already, and fills
/// in what follows from them: times of operators, of forward and of backward. Takes bytes of
/// buffers out of `untracked_bytes` from where they were made to where they were saved: only now it
/// is known that they would be. Of several drops of a buffer the last counts. Without moments
/// nothing has a time.
void add_timeline(std::vector<Moment> moments, Bytes granularity, ChunkProfile& chunk);

/// Sets what follows from the compute times of a timeline: device times of operators, those of
/// forward and of backward.
void add_up_times(ChunkProfile& chunk);

/// The moments of a pass of a later step.
struct TimedPass {
  int chunk = 0;
  std::vector<int> numbers;  // Of its calls in the chunk, as match_calls gives them.
  std::shared_ptr<const std::vector<Moment>> moments;  // Their times may be known later.
};

/// The profile with the times of later passes, the mean of those of each chunk. Calls that none of
/// them made, since their results are kept from the first pass on, take no time. Nothing if one of
/// its chunks is not among them, or if what they saved, wanted and dropped was something else.
[[nodiscard]] std::optional<Profile> with_times(const Profile& profile,
                                                const std::vector<TimedPass>& passes);

}  // namespace spillway
