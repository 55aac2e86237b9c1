/// How fast a shard group gathers; internal.
#pragma once

#include <c10/core/Device.h>

#include "spillway/torch/shard_group.hpp"

namespace spillway {

/// Bytes of other ranks a second, as the slowest rank sees them: one number for all. All ranks call
/// it together. Blocks, for some milliseconds.
[[nodiscard]] double gather_speed(ShardGroup& group, c10::Device device);

}  // namespace spillway
