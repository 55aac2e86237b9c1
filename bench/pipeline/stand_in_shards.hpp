/// Ranks that hold the same buffers as this one, made up: for what a gather costs where there is
/// one process.
///
/// Their parts are copies of this rank's part, so what is gathered is not what was cut: it has its
/// sizes and, nearly, its values, and gradients are not those of the model. A gather takes as long
/// as the parts of the others would on a link of the given speed (PacedStream). Words come at once.
#pragma once

#include <memory>

#include <c10/core/Device.h>

#include "spillway/torch/shard_group.hpp"

namespace spillway::bench {

/// This process is the first of `ranks`.
[[nodiscard]] std::shared_ptr<ShardGroup> stand_in_shards(c10::Device device, int ranks,
                                                          double bytes_per_second);

}  // namespace spillway::bench
