/// Sharding in the planner: after the programme, which knows nothing of it.
#pragma once

#include <cstdint>

#include "plan/solve/planner_search.hpp"

namespace spillway {

/// Tries what of `options.equal` is better held in parts, and what else the memory that this frees
/// is good for, kind of buffer by kind, as the simulator sees it. `found` does not get worse.
void shard_what_helps(Search& search, const PlannerOptions& options, std::int64_t budget,
                      Found& found);

}  // namespace spillway
