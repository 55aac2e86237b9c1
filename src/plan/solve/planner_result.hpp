/// From the result of the search to a plan with reasons.
#pragma once

#include <cstdint>
#include <string>

#include "plan/solve/planner_search.hpp"
#include "spillway/plan/planner.hpp"

namespace spillway {

/// Keeps what is planned to be offloaded but never released in the simulated step.
void keep_resident_buffers(Search& search, std::int64_t budget, Candidate& found);

/// Fills in the reason of every decision of the planner.
void add_reasons(const Search& search, const Candidate& found, Plan& plan);

/// "at most 1.3 % above any plan of this kind".
[[nodiscard]] std::string gap_text(double gap);

/// "no plan fits 1.2 GiB: the smallest peak is 1.9 GiB (layers.3.mlp, aten::mm backward); ...".
[[nodiscard]] std::string infeasible_text(const Search& search, const Candidate& smallest,
                                          Bytes budget);

}  // namespace spillway
