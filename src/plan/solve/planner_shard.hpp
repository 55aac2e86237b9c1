/// Sharding in the planner: after the MILP model, which does not include it.
#pragma once

#include <cstdint>

#include "plan/solve/planner_search.hpp"

namespace spillway {

/// Tries to shard the buffers of `options.equal`, and to use the memory that this frees for others,
/// kind of buffer by kind, by simulation. `found` does not get worse.
void shard_what_helps(Search& search, const PlannerOptions& options, std::int64_t budget,
                      Candidate& found);

}  // namespace spillway
