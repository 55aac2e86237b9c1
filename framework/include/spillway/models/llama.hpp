/// A Llama-shaped language model in eager LibTorch, with the scopes that rules name:
/// layers.N.attention.{norm,qkv,core,proj}, layers.N.mlp.{norm,fc1,act,fc2}, head; with experts
/// those of moe.hpp within layers.N.mlp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spillway/models/moe.hpp"
#include "spillway/pipeline/layer_desc.hpp"
#include "spillway/tensor/tensor_parallel.hpp"

namespace spillway {

struct LlamaShape {
  int layers = 16;
  std::int64_t hidden = 4096;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 8;
  std::int64_t ffn = 14336;
  std::int64_t tokens = 8192;  ///< The longest sequence.
  std::int64_t vocabulary = 32000;
  double dropout = 0;  ///< Of what attention and MLP add to the residual.
  MoeShape moe = {};   ///< Instead of the MLP in some layers.
  bool tied = false;   ///< The head has the weights of the embedding.
  std::uint64_t seed = 0;
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kBFloat16;
  TensorParallel parallel = {};  ///< The ranks that share the matrices; not together with experts.
};

/// Errors: InvalidArgument for a shape that cannot be: heads that do not divide `hidden`, ...
void check(const LlamaShape& shape);

/// The model as a list: embedding, layers.0, layers.1, ..., head; tied, the last are norm and head.
/// From tokens, [batch, length], to logits, [batch, length, vocabulary]; the loss is
/// language_model_loss(). With tensor parallelism every rank has the logits of a part of the
/// vocabulary, and the loss is vocabulary_cross_entropy(). Kinds: TokenEmbedding, LlamaLayer,
/// LlamaHead, LlamaNorm.
/// Errors: as check().
[[nodiscard]] std::vector<LayerDesc> llama_layers(const LlamaShape& shape);

/// All of the layers in one process.
/// Threads: one at a time. Its random numbers (weights, dropout) are those of torch's default
/// generators; the constructor seeds them.
class Llama {
 public:
  /// Errors: as check().
  explicit Llama(const LlamaShape& shape);

  /// The mean cross entropy of predicting `targets` from `tokens`; both [batch, length], length at
  /// most shape().tokens.
  [[nodiscard]] at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets) const;

  /// The parts of loss(), for callers that run the layers themselves: loss() is
  /// embed(), then run_layer() of each layer, then predict().
  [[nodiscard]] at::Tensor embed(const at::Tensor& tokens) const;
  [[nodiscard]] at::Tensor run_layer(int layer, const at::Tensor& x) const;
  [[nodiscard]] at::Tensor predict(const at::Tensor& x, const at::Tensor& targets) const;

  [[nodiscard]] const LlamaShape& shape() const noexcept { return shape_; }
  [[nodiscard]] const std::vector<at::Tensor>& parameters() const noexcept { return parameters_; }
  /// "layers.0.attention.qkv", in the order of parameters().
  [[nodiscard]] const std::vector<std::string>& parameter_names() const noexcept { return names_; }
  /// The tables of the rotary embedding.
  [[nodiscard]] const std::vector<at::Tensor>& buffers() const noexcept { return buffers_; }

 private:
  LlamaShape shape_;
  std::vector<BuiltLayer> layers_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> buffers_;
};

}  // namespace spillway
