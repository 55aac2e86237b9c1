/// Random small profiles with timelines, plans for them and schedules: for properties that must
/// hold whatever a step looks like.
#pragma once

#include <random>

#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/schedule.hpp"

namespace spillway::testing {

/// One or two chunks of up to 25 calls that read each other's results: some saved, by their maker
/// or by a reader, some more than once, some small, fixed or caller-owned; unpacked in the
/// opposite order of their saves, more or less.
[[nodiscard]] Profile random_step_profile(std::mt19937_64& random);

/// Rules decide at random; without lists and limits.
[[nodiscard]] Plan random_plan(const Profile& profile, std::mt19937_64& random);

/// One pass, several one after another, or several passes in flight.
[[nodiscard]] PassSchedule random_schedule(const Profile& profile, std::mt19937_64& random);

}  // namespace spillway::testing
