/// How a tensor is sharded over the ranks of a group, and gathered.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spillway/groups/group.hpp"

namespace spillway {

/// One dimension is made up of blocks, and every rank has an equal part of each of them: of
/// queries, keys and values in one matrix, for example, the heads that are its own.
struct Shard {
  int dimension = 0;
  /// Of the whole tensor, in order.
  std::vector<std::int64_t> blocks;

  bool operator==(const Shard&) const = default;
};

/// The part of `rank` among `ranks`, a tensor of its own.
/// Errors: InvalidArgument if the blocks do not make up the dimension, or cannot be divided evenly.
[[nodiscard]] at::Tensor part_of(const at::Tensor& whole, const Shard& shard, int rank, int ranks);

/// The whole of all parts, by rank.
/// Errors: InvalidArgument if the parts do not make up the blocks.
[[nodiscard]] at::Tensor whole_of(const std::vector<at::Tensor>& parts, const Shard& shard);

/// The same of the parts that the members of `group` have.
/// Ordering: collective over the group. Nothing here is seen by autograd.
[[nodiscard]] at::Tensor gather_buffer(const Group& group, const at::Tensor& part,
                                       const Shard& shard);

}  // namespace spillway
