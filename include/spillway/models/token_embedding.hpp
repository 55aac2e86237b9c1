/// The vectors of a vocabulary: the first layer of a language model, and its last one where the two
/// are tied.
#pragma once

#include <cstdint>

#include <torch/nn/module.h>

namespace spillway {

class TokenEmbedding : public torch::nn::Module {
 public:
  /// Weights are normally distributed, `scale` wide.
  TokenEmbedding(std::int64_t vocabulary, std::int64_t hidden, double scale,
                 const at::TensorOptions& options);

  /// [batch, length] tokens -> [batch, length, hidden].
  [[nodiscard]] at::Tensor forward(const at::Tensor& tokens) const;
  /// [batch, length, hidden] -> [batch, length, vocabulary]: how alike they are.
  [[nodiscard]] at::Tensor logits(const at::Tensor& x) const;

 private:
  at::Tensor weight_;
};

/// The mean cross entropy of predicting `targets`, [batch, length], by `logits`.
[[nodiscard]] at::Tensor language_model_loss(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace spillway
