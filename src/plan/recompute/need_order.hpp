/// The order in which backward and its replays need buffers and anchors.
#pragma once

#include <cstdint>
#include <vector>

#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"

namespace spillway {

/// As ChunkPlan::need_order says. Each call is replayed once, for the first buffer that needs it.
/// `anchor_of`: by value, its index among the plan's anchors, -1 if it is none.
[[nodiscard]] std::vector<int> need_order(const ChunkProfile& chunk, const ChunkPlan& plan,
                                          const std::vector<int>& anchor_of);

/// What decides which calls replays repeat, and in which order, as one number. Ranks whose plans
/// have the same one repeat the same collectives in the same order; others may do so, too. The same
/// on every machine. 0: the plan may not repeat collectives.
[[nodiscard]] std::uint64_t replay_digest(const Plan& plan);

}  // namespace spillway
