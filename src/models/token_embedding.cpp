#include "spillway/models/token_embedding.hpp"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>

#include "models/weights.hpp"

namespace spillway {

TokenEmbedding::TokenEmbedding(std::int64_t vocabulary, std::int64_t hidden, double scale,
                               const at::TensorOptions& options)
    : weight_(add_weight(*this, "weight", {vocabulary, hidden}, scale, options)) {}

at::Tensor TokenEmbedding::forward(const at::Tensor& tokens) const {
  return at::embedding(weight_, tokens);
}

at::Tensor TokenEmbedding::logits(const at::Tensor& x) const { return at::linear(x, weight_); }

at::Tensor language_model_loss(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.view({-1, logits.size(-1)}), targets.reshape({-1}));
}

}  // namespace spillway
