/// Groups over which sessions shard buffers: see docs/rules.md on `shard`.
#pragma once

#include <memory>

#include "spillway/groups/group.hpp"
#include "spillway/torch/shard_group.hpp"

namespace spillway {

/// Gathers parts over `group`, and sends words over it or over `words`, which has the same members.
/// Give one for `words` that takes CPU tensors where `group` takes CUDA tensors only (NCCL): words
/// through the device make the host wait for it. Neither group may be used for anything else: the
/// session calls them when its plan says so, between whatever collectives a model has.
///
///   const auto tensor_ranks = topology.partition(Axis::kTensor);
///   session.set_shard_group(shard_group(world->group("shard", tensor_ranks)));
[[nodiscard]] std::shared_ptr<ShardGroup> shard_group(const Group& group);
/// Errors: InvalidArgument if the members differ.
[[nodiscard]] std::shared_ptr<ShardGroup> shard_group(const Group& group, const Group& words);

}  // namespace spillway
