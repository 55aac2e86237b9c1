/// Allowances while they are computed.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace spillway {

/// By chunk, then by site or by index in the order of unpacks: the least that was found, or this.
using Allowances = std::vector<std::vector<std::int64_t>>;
inline constexpr std::int64_t kNoAllowance = std::numeric_limits<std::int64_t>::max();

}  // namespace spillway
