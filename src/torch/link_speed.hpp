/// How fast buffers leave the device and come back; internal.
#pragma once

#include "spillway/memory/tier.hpp"
#include "spillway/plan/profile.hpp"
#include "torch_device.hpp"

namespace spillway {

/// Copies a few buffers each way alone and both ways at once, with memory of `tier`, while the
/// device computes: that takes some percent of the link's speed. Blocks for some milliseconds;
/// takes 64 MiB of each side for that time, or as much as the tier may have. All zero if there is no room for it.
[[nodiscard]] LinkSpeed measure_link(TorchDevice& torch_device, Tier& tier);

}  // namespace spillway
