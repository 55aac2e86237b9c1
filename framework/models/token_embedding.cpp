#include "spillway/models/token_embedding.hpp"

#include <ATen/ops/cross_entropy_loss.h>

#include "models/weights.hpp"

namespace spillway {

TokenEmbedding::TokenEmbedding(std::int64_t vocabulary, std::int64_t hidden, double scale,
                               const at::TensorOptions& options, const TensorParallel& parallel)
    : VocabularyEmbedding(parallel, normal_values({vocabulary, hidden}, scale, options)) {}

at::Tensor language_model_loss(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.view({-1, logits.size(-1)}), targets.reshape({-1}));
}

}  // namespace spillway
