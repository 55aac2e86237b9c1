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

/// Lowers the speed of one direction so that copying `bytes` takes `unpredicted_ns` longer than
/// predicted, but by at most 5 %, because one step is weak evidence. Ignores less than 0.2 % of a
/// step as noise. Returns whether it changed the speed.
[[nodiscard]] bool slow_down(double& alone, double& with_other, Bytes bytes, double unpredicted_ns,
                             double step_ns);

}  // namespace spillway
