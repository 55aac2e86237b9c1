/// Whether a simulation is consistent: computes memory a second way, from intervals instead of
/// events, and checks that copies, waits and uses come in an order that streams allow.
#pragma once

#include <string>
#include <vector>

#include "spillway/plan/simulate.hpp"

namespace spillway {

/// What is wrong with a traced simulation, one sentence each:
///  - copies of one way overlap, or are faster than the link, or begin before they were queued,
///    or a copy back before its copy out has ended;
///  - memory is released before its copy out has ended, or used before its copy back has;
///  - the bytes at some moment are not those that follow from the intervals;
///  - more is kept or prefetched than the list of a pass says;
///  - times do not add up.
/// Precondition: the plan was made for the profile, the simulation for both with `trace`.
[[nodiscard]] std::vector<std::string> problems_of(const Simulation& simulation,
                                                   const Profile& profile, const Plan& plan,
                                                   PassSchedule schedule = {});

}  // namespace spillway
