/// A stack of Llama-shaped layers in eager LibTorch, with the scopes of our own models.
#pragma once

#include <vector>

#include <ATen/ATen.h>

namespace spillway::bench {

struct LlamaShape {
  int layers = 16;
  std::int64_t hidden = 4096;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 8;
  std::int64_t ffn = 14336;
  std::int64_t tokens = 8192;
  std::int64_t vocabulary = 32000;
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kBFloat16;
};

class LlamaLayers {
 public:
  explicit LlamaLayers(const LlamaShape& shape);

  [[nodiscard]] at::Tensor loss(const at::Tensor& tokens) const;
  [[nodiscard]] at::Tensor tokens() const;
  [[nodiscard]] const std::vector<at::Tensor>& parameters() const noexcept { return parameters_; }
  /// The tables of the rotary embedding.
  [[nodiscard]] std::vector<at::Tensor> buffers() const { return {cos_, sin_}; }

 private:
  struct Layer {
    at::Tensor norm1, qkv, proj, norm2, gate_up, down;
  };

  [[nodiscard]] at::Tensor weight(const std::vector<std::int64_t>& sizes, double scale);
  [[nodiscard]] at::Tensor rotate(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor attention(const Layer& layer, const at::Tensor& x) const;
  [[nodiscard]] at::Tensor mlp(const Layer& layer, const at::Tensor& x) const;

  LlamaShape shape_;
  at::Tensor embedding_, norm_, head_, cos_, sin_;
  std::vector<Layer> layers_;
  std::vector<at::Tensor> parameters_;
};

}  // namespace spillway::bench
