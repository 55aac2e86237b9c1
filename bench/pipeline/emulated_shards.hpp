/// Emulates ranks that have the same buffers as this one, to measure an all-gather in one process.
///
/// Their shards are copies of this rank's shard: a gathered buffer has the size of the original but
/// not its values, so gradients are not those of the model. A gather takes as long as the shards of
/// the others would on a link of the given speed (PacedStream). Words arrive at once.
#pragma once

#include <memory>

#include <c10/core/Device.h>

#include "spillway/torch/shard_group.hpp"

namespace spillway::bench {

/// This process is the first of `ranks`.
[[nodiscard]] std::shared_ptr<ShardGroup> emulated_shards(c10::Device device, int ranks,
                                                          double bytes_per_second);

}  // namespace spillway::bench
