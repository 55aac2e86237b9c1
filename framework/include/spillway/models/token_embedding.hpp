/// The vectors of a vocabulary: the first layer of a language model, and its last one where the two
/// are tied.
#pragma once

#include <cstdint>

#include "spillway/tensor/tensor_modules.hpp"

namespace spillway {

class TokenEmbedding : public VocabularyEmbedding {
 public:
  /// Weights are normally distributed, `scale` wide.
  TokenEmbedding(std::int64_t vocabulary, std::int64_t hidden, double scale,
                 const at::TensorOptions& options, const TensorParallel& parallel = {});
};

/// The mean cross entropy of predicting `targets`, [batch, length], by `logits`.
[[nodiscard]] at::Tensor language_model_loss(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace spillway
