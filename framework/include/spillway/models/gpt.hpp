/// A GPT-shaped language model: learned positions, layer norms with biases, GELU. Scopes as in
/// llama.hpp: layers.N.attention.{norm,qkv,core,proj}, layers.N.mlp.{norm,fc1,act,fc2}, head; with
/// experts those of moe.hpp within layers.N.mlp.
#pragma once

#include <cstdint>
#include <vector>

#include "spillway/models/moe.hpp"
#include "spillway/pipeline/layer_desc.hpp"
#include "spillway/tensor/tensor_parallel.hpp"

namespace spillway {

/// The defaults are those of the model with 117 million parameters.
struct GptShape {
  int layers = 12;
  std::int64_t hidden = 768;
  std::int64_t heads = 12;
  std::int64_t ffn = 3072;
  std::int64_t tokens = 1024;  ///< The longest sequence.
  std::int64_t vocabulary = 50304;
  double dropout = 0.1;  ///< Of the embedding, of attention, and of what is added to the residual.
  bool tied = true;      ///< The head has the weights of the embedding.
  MoeShape moe = {};     ///< Instead of the MLP in some layers; experts have no biases.
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
  TensorParallel parallel = {};  ///< The ranks that share the matrices.
};

/// Errors: InvalidArgument for a shape that cannot be.
void check(const GptShape& shape);

/// The model as a list: embedding, positions, layers.0, layers.1, ..., norm, head. From tokens,
/// [batch, length], to logits, [batch, length, vocabulary]; the loss is language_model_loss(). With
/// tensor parallelism every rank has the logits of a part of the vocabulary, and the loss is
/// vocabulary_cross_entropy().
/// Kinds: TokenEmbedding, GptPositions, GptLayer, GptNorm.
/// Errors: as check().
[[nodiscard]] std::vector<LayerDesc> gpt_layers(const GptShape& shape);

}  // namespace spillway
