/// From a relaxed solution of a MILP model to an integer one.
#pragma once

#include <vector>

#include "plan/highs/highs.hpp"

namespace spillway {

/// Decides the fractional integer columns one after another, the one nearest to an integer first,
/// and solves the relaxation again after each: from where it ended, which takes a thousandth of the
/// time of a search tree. A column gets the other value where that costs less.
/// `relaxation` is that of `model`; `relaxed` is its solution. Integer columns are 0 or 1.
/// By column; empty if no integer solution was found on the way.
[[nodiscard]] std::vector<double> dive(const LinearModel& model, Relaxation& relaxation,
                                       const Solution& relaxed);

}  // namespace spillway
