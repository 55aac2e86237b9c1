/// The layers that ranks of a tensor-parallel group share: linear layers by columns and by rows,
/// the embedding and the loss by vocabulary.
///
/// Each is made from the whole weight, which is the same on all ranks because they draw it from the
/// same seed, and keeps its own part. For a group of one they are the layers of torch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "spillway/comm/shard.hpp"
#include "spillway/tensor/tensor_parallel.hpp"

namespace spillway {

/// A module that has only a part of some of its parameters.
class ShardedModule : public torch::nn::Module {
 public:
  explicit ShardedModule(TensorParallel parallel) : parallel_(std::move(parallel)) {}

  /// By name of the parameter; empty for a group of one.
  [[nodiscard]] const std::map<std::string, Shard>& shards() const noexcept { return shards_; }

 protected:
  /// Registers this rank's part of `whole`. Without blocks the dimension is one.
  /// Errors: InvalidArgument as part_of().
  at::Tensor add_part(const std::string& name, const at::Tensor& whole, int dimension,
                      std::vector<std::int64_t> blocks = {});
  [[nodiscard]] const TensorParallel& parallel() const noexcept { return parallel_; }

 private:
  TensorParallel parallel_;
  std::map<std::string, Shard> shards_;
};

/// The shards of a module and of all within it, by the names of named_parameters().
[[nodiscard]] std::map<std::string, Shard> shards_of(const torch::nn::Module& module);

/// From what enters a block, enter(), to the columns of this rank.
class ColumnLinear : public ShardedModule {
 public:
  /// `weight`: [out, in], `bias`: [out] or undefined. `blocks`: of the columns; each is sharded.
  ColumnLinear(const TensorParallel& parallel, const at::Tensor& weight, const at::Tensor& bias,
               const std::vector<std::int64_t>& blocks = {});

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

 private:
  at::Tensor weight_, bias_;
};

/// From the columns of this rank to what leaves the block, leave(). The bias, which all ranks have,
/// comes after that.
class RowLinear : public ShardedModule {
 public:
  /// `weight`: [out, in], `bias`: [out] or undefined.
  RowLinear(const TensorParallel& parallel, const at::Tensor& weight, const at::Tensor& bias);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

 private:
  at::Tensor weight_, bias_;
};

/// The vectors of a vocabulary, of which each rank has an equal part.
class VocabularyEmbedding : public ShardedModule {
 public:
  /// `weight`: [vocabulary, hidden].
  VocabularyEmbedding(const TensorParallel& parallel, const at::Tensor& weight);

  /// [batch, length] tokens -> [batch, length, hidden], as what leaves a block.
  [[nodiscard]] at::Tensor forward(const at::Tensor& tokens) const;
  /// How alike they are, for this rank's part of the vocabulary: from what enters a block to
  /// [batch, length, vocabulary / ranks].
  [[nodiscard]] at::Tensor logits(const at::Tensor& x) const;

 private:
  at::Tensor weight_;
};

/// The mean cross entropy of predicting `targets`, [batch, length] with the whole length, by
/// `logits`, [batch, length, vocabulary / ranks]: the same on all ranks. The logits are not
/// moved; three numbers for each target are exchanged between the ranks. Sums are made in float at
/// least.
[[nodiscard]] at::Tensor vocabulary_cross_entropy(const TensorParallel& parallel,
                                                  const at::Tensor& logits,
                                                  const at::Tensor& targets);

}  // namespace spillway
