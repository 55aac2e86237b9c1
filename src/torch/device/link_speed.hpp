/// How fast buffers are offloaded and reloaded; internal.
#pragma once

#include "spillway/memory/tier.hpp"
#include "spillway/plan/profile.hpp"
#include "torch/device/torch_device.hpp"

namespace spillway {

/// Measures the speed of copies in each direction alone and in both at once, with memory of `tier`,
/// while the device computes, which costs the link some percent; and how much copies slow compute.
/// Blocks for a quarter of a second on a GPU, else for some milliseconds. Copies are as large as
/// the link carries in 0.6 ms, at most 32 MiB: two of them are used on each side meanwhile, or as
/// much as the tier may have, and 256 MiB more on a device with twice that room.
/// All zero if there is no room for it; the slowdown of compute is unset if it cannot be measured.
[[nodiscard]] LinkSpeed measure_link(TorchDevice& torch_device, Tier& tier);

}  // namespace spillway
