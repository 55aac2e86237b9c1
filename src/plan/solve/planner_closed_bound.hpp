/// A lower bound for the time of a step under a budget that follows from bytes and speeds alone.
#pragma once

#include <cstdint>

#include "plan/solve/planner_evaluate.hpp"

namespace spillway {

/// The excess over the budget at the peak of a step that keeps everything must have been copied out
/// before, as far as the link can in that time. The rest must be recomputed, at the cheapest time
/// per byte, or copied while compute waits, whichever takes less. `base`: the simulation in which
/// everything is kept.
[[nodiscard]] std::int64_t closed_bound_ns(const Evaluator& evaluator, const Simulation& base,
                                           const LinkSpeed& link, std::int64_t budget);

}  // namespace spillway
