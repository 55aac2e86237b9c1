/// Whether the parts of a profile from a file fit together.
#pragma once

#include "spillway/plan/profile.hpp"
#include "util/json_fields.hpp"

namespace spillway {

/// Errors: ConfigError for counts that cannot be, numbers that point to nothing, and a graph of
/// values that contradicts itself. Readers of a checked profile need no further checks.
void check_profile(const Profile& profile, const JsonSource& source);

}  // namespace spillway
