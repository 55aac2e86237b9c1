/// Tensor and sequence parallelism: ranks that share each matrix of a model, and what passes
/// between them.
///
/// A block of a model is entered and left once: enter(), linear layers of which every rank has some
/// columns, then one of which it has the matching rows, leave(). Between blocks every rank has all
/// of the tokens, or, with `sequence`, an equal part of each sequence, [batch, length / ranks,
/// ...]: norms, residuals and dropout are then shared too. Gradients of weights that all ranks have
/// are in that case parts of a sum: PipelineRunner adds them up.
///
/// Each of these functions is one operator of the dispatcher (spillway_group::all_reduce and so
/// on), so that a session sees collectives, and recipes stop at them. What they return is there.
///
/// Order:   all members call them in the same order, and backward runs through them in the same
///          order too, because their graphs are alike.
/// Bits:    what all ranks have is equal on all of them to the bit.
/// Threads: as Group. Errors: as Group.
#pragma once

#include <optional>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "spillway/groups/group.hpp"

namespace spillway {

/// Default: no tensor parallelism. Then the functions below return what they are given, and no
/// operator runs.
struct TensorParallel {
  Group group = Group();
  bool sequence = false;  ///< Between blocks every rank has a part of the sequence.

  [[nodiscard]] bool active() const noexcept { return group.size() > 1; }
  [[nodiscard]] int rank() const noexcept { return group.rank(); }
  [[nodiscard]] int ranks() const noexcept { return group.size(); }
};

/// Forward: the same. Backward: the sum of the members' gradients.
[[nodiscard]] at::Tensor copy_to_group(const TensorParallel& parallel, const at::Tensor& x);
/// Forward: the sum of the members' tensors. Backward: the same.
[[nodiscard]] at::Tensor reduce_from_group(const TensorParallel& parallel, const at::Tensor& x);

/// Dimension 1 is that of the sequence. In length / ranks each rank has its part, by group rank.
/// Forward: all parts together. Backward: the sum of the members' gradients, of that this rank's
/// part.
[[nodiscard]] at::Tensor gather_sequence(const TensorParallel& parallel, const at::Tensor& x);
/// Forward: the sum of the members' tensors, of that this rank's part. Backward: all parts
/// together.
/// Errors: InvalidArgument if the length cannot be divided into equal parts.
[[nodiscard]] at::Tensor scatter_sequence(const TensorParallel& parallel, const at::Tensor& x);
/// Forward: this rank's part of what all members have. Backward: all parts together.
/// Errors: as scatter_sequence().
[[nodiscard]] at::Tensor split_sequence(const TensorParallel& parallel, const at::Tensor& x);

/// Into a block: gather_sequence(), or copy_to_group() without `sequence`.
[[nodiscard]] at::Tensor enter(const TensorParallel& parallel, const at::Tensor& x);
/// Out of it: scatter_sequence(), or reduce_from_group() without `sequence`.
[[nodiscard]] at::Tensor leave(const TensorParallel& parallel, const at::Tensor& x);

/// While it lives, this rank draws other random numbers from the device's default generator than
/// the other members: for what is sharded over the group. What is not must be drawn outside of it,
/// where the generators of all members stay alike, if they were. For a group of one it does
/// nothing.
///
/// Recipes replay what was drawn within it as anything else that is random. The host does not wait.
/// Threads: as the generator; not to be passed on to another thread.
class ShardedRandom {
 public:
  ShardedRandom(const TensorParallel& parallel, at::Device device);
  ShardedRandom(const ShardedRandom&) = delete;
  ShardedRandom& operator=(const ShardedRandom&) = delete;
  ~ShardedRandom();

 private:
  std::optional<at::Generator> generator_;
  at::Tensor outside_;  // The generator's state to go back to, on the CPU.
};

/// at::dropout() of something between blocks: the same on all ranks, or on each its own with
/// `sequence`. A share of 0 is no operator.
[[nodiscard]] at::Tensor dropout_between(const TensorParallel& parallel, const at::Tensor& x,
                                         double share, bool training);

}  // namespace spillway
