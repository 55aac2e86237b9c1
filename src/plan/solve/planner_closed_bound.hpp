/// A lower bound for the time of a step under a budget that follows from bytes and speeds alone.
#pragma once

#include <cstdint>

#include "plan/solve/planner_evaluate.hpp"

namespace spillway {

/// What is too much where a step that keeps everything has its peak must have left before, over a
/// link that carries so much in that time, or must be made again: at the cheapest time per byte, or
/// while compute waits for the link, whichever is less.
/// `base`: the simulation in which everything is kept.
[[nodiscard]] std::int64_t closed_bound_ns(const Evaluator& evaluator, const Simulation& base,
                                           const LinkSpeed& link, std::int64_t budget);

}  // namespace spillway
