/// Whether ranks that repeat collectives together will do so in the same order.
#pragma once

#include <c10/core/Device.h>

#include "spillway/groups/group.hpp"
#include "spillway/plan/plan.hpp"

namespace spillway {

/// For plans with recompute_collectives: call it before every step with Session::plan(). What is
/// replayed, and when, follows from the plan alone, so equal decisions mean equal orders. (Without
/// this a rank would wait for a collective that the others do not repeat.) Rules give equal plans
/// on ranks that run the same layers; a budget does not, because each rank plans by its own times.
/// Ordering: collective over the group. Host waits for one number from each rank.
/// Errors:   InvalidArgument, on all ranks, if the plans differ in what they replay.
void require_same_replays(const Group& group, const Plan* plan, c10::Device device);

}  // namespace spillway
