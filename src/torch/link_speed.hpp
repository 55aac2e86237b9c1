/// How fast buffers leave the device and come back; internal.
#pragma once

#include "spillway/core/device.hpp"
#include "spillway/memory/tier.hpp"
#include "spillway/plan/profile.hpp"

namespace spillway {

/// Copies a few buffers each way alone and both ways at once, with memory of `tier`. Blocks for
/// some milliseconds; takes 64 MiB of each side for that time, or as much as the tier may have. All
/// zero if there is no room for it.
[[nodiscard]] LinkSpeed measure_link(Device& device, Tier& tier);

}  // namespace spillway
