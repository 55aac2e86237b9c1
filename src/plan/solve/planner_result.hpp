/// From what the search found to a plan that a person can read.
#pragma once

#include <cstdint>
#include <string>

#include "plan/solve/planner_search.hpp"
#include "spillway/plan/planner.hpp"

namespace spillway {

/// What is offloaded but never leaves the device in the simulated step is kept instead.
void keep_what_stays(Search& search, std::int64_t budget, Found& found);

/// Says for every decision of the planner why.
void add_reasons(const Search& search, const Found& found, Plan& plan);

/// "at most 1.3 % above any plan of this kind".
[[nodiscard]] std::string gap_text(double gap);

/// "no plan fits 1.2 GiB: the smallest peak is 1.9 GiB (layers.3.mlp, aten::mm backward); ...".
[[nodiscard]] std::string infeasible_text(const Search& search, const Found& smallest,
                                          Bytes budget);

}  // namespace spillway
