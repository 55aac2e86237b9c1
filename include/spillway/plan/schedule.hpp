/// The order in which one rank runs the passes of a step, as the planner and the simulator see it.
#pragma once

#include <vector>

#include "spillway/plan/profile.hpp"

namespace spillway {

/// The forward or the backward of one chunk on one micro-batch.
struct PassStep {
  int chunk = 0;
  int micro_batch = 0;
  bool backward = false;

  bool operator==(const PassStep&) const = default;
};

using PassSchedule = std::vector<PassStep>;

/// One micro-batch: every chunk of the profile forward, then backward in the opposite order.
[[nodiscard]] PassSchedule one_pass(const Profile& profile);

/// `micro_batches` of them one after another, each with its backward: gradient accumulation.
[[nodiscard]] PassSchedule accumulate(const Profile& profile, int micro_batches);

/// Errors: InvalidArgument if a pass has its backward before its forward, or one of them twice or
/// not at all.
void require_valid(const PassSchedule& schedule);

/// Errors: also if a pass is of a chunk the profile does not have.
void require_valid(const PassSchedule& schedule, const Profile& profile);

/// The steps of those chunks that the profile has, in order.
[[nodiscard]] PassSchedule known_part(const PassSchedule& schedule, const Profile& profile);

}  // namespace spillway
