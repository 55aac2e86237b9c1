/// How fast buffers leave the device and come back; internal.
#pragma once

#include "spillway/memory/tier.hpp"
#include "spillway/plan/profile.hpp"
#include "torch/device/torch_device.hpp"

namespace spillway {

/// Copies a few buffers each way alone and both ways at once, with memory of `tier`, while the
/// device computes: that takes some percent of the link's speed. And the other way round: how much
/// longer the device computes for it. Blocks for a quarter of a second on a GPU, else for some
/// milliseconds; takes 64 MiB of each side for that time, or as much as the tier may have, and 256
/// MiB more of a device that has twice as many. All zero if there is no room for it; nothing said
/// of the other way round if it cannot be told.
[[nodiscard]] LinkSpeed measure_link(TorchDevice& torch_device, Tier& tier);

/// Lowers the speed of one direction so that copying `bytes` takes `unpredicted_ns` longer than was
/// thought, but by 5 % at most: one step does not prove more. Less than 0.2 % of a step is nobody's
/// doing. Says whether it did.
[[nodiscard]] bool slow_down(double& alone, double& with_other, Bytes bytes, double unpredicted_ns,
                             double step_ns);

}  // namespace spillway
