/// How fast a shard group gathers; internal.
#pragma once

#include <c10/core/Device.h>

#include "spillway/torch/shard_group.hpp"

namespace spillway {

/// Bytes received per second, as measured by the slowest rank: the same number on all ranks.
/// Collective. Blocks for some milliseconds.
[[nodiscard]] double gather_speed(ShardGroup& group, c10::Device device);

}  // namespace spillway
