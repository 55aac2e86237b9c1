/// Which scopes of a profile are its repeated layers.
#pragma once

#include <string>

#include "spillway/plan/profile.hpp"

namespace spillway {

/// Finds the repeated layers by scopes ("layers.0", "layers.1", ...) and numbers what lies in them.
/// `wanted`: the scope of their list; empty: the longest one.
void find_layers(Profile& profile, const std::string& wanted);

}  // namespace spillway
