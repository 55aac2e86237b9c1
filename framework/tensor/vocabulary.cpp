#include <ATen/ATen.h>

#include "comm/group_operators.hpp"
#include "spillway/tensor/tensor_modules.hpp"

namespace spillway {
namespace {

/// Tokens as rows of this rank's part of a vocabulary.
struct LocalTokens {
  at::Tensor rows;    // Of those that are another rank's: any.
  at::Tensor others;  // Which are another rank's.
};

LocalTokens local_tokens(const TensorParallel& parallel, const at::Tensor& tokens,
                         std::int64_t part) {
  const at::Tensor rows = tokens - parallel.rank() * part;
  return {rows.clamp(0, part - 1), (rows < 0).logical_or(rows >= part)};
}

}  // namespace

VocabularyEmbedding::VocabularyEmbedding(const TensorParallel& parallel, const at::Tensor& weight)
    : ShardedModule(parallel), weight_(add_part("weight", weight, 0)) {}

at::Tensor VocabularyEmbedding::forward(const at::Tensor& tokens) const {
  if (!parallel().active()) return at::embedding(weight_, tokens);
  const LocalTokens local = local_tokens(parallel(), tokens, weight_.size(0));
  const at::Tensor mine =
      at::embedding(weight_, local.rows).masked_fill(local.others.unsqueeze(-1), 0);
  return leave(parallel(), mine);
}

at::Tensor VocabularyEmbedding::logits(const at::Tensor& x) const {
  return at::linear(enter(parallel(), x), weight_);
}

at::Tensor vocabulary_cross_entropy(const TensorParallel& parallel, const at::Tensor& logits,
                                    const at::Tensor& targets) {
  const at::Tensor rows = logits.view({-1, logits.size(-1)});
  const at::Tensor wanted = targets.reshape({-1});
  if (!parallel.active()) return at::cross_entropy_loss(rows, wanted);
  const bool narrow = rows.scalar_type() == at::kHalf || rows.scalar_type() == at::kBFloat16;
  const at::Tensor wide = narrow ? rows.to(at::kFloat) : rows;
  const at::Tensor largest =
      call_all_reduce(parallel.group, wide.detach().amax(-1, true), Reduce::kMax);
  const at::Tensor below = wide - largest;
  const at::Tensor sum = reduce_from_group(parallel, below.exp().sum(-1));
  const LocalTokens local = local_tokens(parallel, wanted, rows.size(1));
  const at::Tensor mine = below.gather(1, local.rows.unsqueeze(1)).squeeze(1);
  const at::Tensor target = reduce_from_group(parallel, mine.masked_fill(local.others, 0));
  return (sum.log() - target).mean();
}

}  // namespace spillway
