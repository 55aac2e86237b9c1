#include "llama_layers.hpp"

#include <string>

#include "spillway/torch/scope.hpp"

namespace spillway::bench {

LlamaLayers::LlamaLayers(const LlamaShape& shape) : shape_(shape) {
  at::manual_seed(0);
  const std::int64_t head = shape.hidden / shape.heads;
  embedding_ = weight({shape.vocabulary, shape.hidden}, 1);
  for (int i = 0; i < shape.layers; ++i) {
    layers_.push_back({weight({shape.hidden}, 0),
                       weight({(shape.heads + 2 * shape.kv_heads) * head, shape.hidden}, 0.02),
                       weight({shape.hidden, shape.hidden}, 0.02), weight({shape.hidden}, 0),
                       weight({2 * shape.ffn, shape.hidden}, 0.02),
                       weight({shape.hidden, shape.ffn}, 0.02)});
  }
  norm_ = weight({shape.hidden}, 0);
  head_ = weight({shape.vocabulary, shape.hidden}, 0.02);
  const auto options = at::TensorOptions().device(shape.device).dtype(at::kFloat);
  const at::Tensor frequency = at::pow(10000.0, -at::arange(0, head, 2, options) / head);
  const at::Tensor angle = at::outer(at::arange(shape.tokens, options), frequency);
  cos_ = angle.cos().to(shape.dtype);
  sin_ = angle.sin().to(shape.dtype);
}

at::Tensor LlamaLayers::weight(const std::vector<std::int64_t>& sizes, double scale) {
  const auto options = at::TensorOptions().device(shape_.device).dtype(shape_.dtype);
  at::Tensor tensor = scale == 0 ? at::ones(sizes, options) : at::randn(sizes, options) * scale;
  tensor = tensor.detach().set_requires_grad(true);
  parameters_.push_back(tensor);
  return tensor;
}

at::Tensor LlamaLayers::rotate(const at::Tensor& x) const {
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cos_ - halves[1] * sin_, halves[1] * cos_ + halves[0] * sin_}, -1);
}

at::Tensor LlamaLayers::attention(const Layer& layer, const at::Tensor& x) const {
  const Scope scope("attention");
  const std::int64_t head = shape_.hidden / shape_.heads;
  at::Tensor h;
  {
    const Scope norm("norm");
    h = at::rms_norm(x, {shape_.hidden}, layer.norm1, 1e-5);
  }
  std::vector<at::Tensor> parts;
  {
    const Scope qkv("qkv");
    parts = at::linear(h, layer.qkv)
                .split_with_sizes(
                    {shape_.heads * head, shape_.kv_heads * head, shape_.kv_heads * head}, -1);
  }
  const auto by_head = [&](const at::Tensor& part, std::int64_t heads) {
    return part.view({1, shape_.tokens, heads, head}).transpose(1, 2);
  };
  at::Tensor attended;
  {
    const Scope core("core");
    const at::Tensor q = rotate(by_head(parts[0], shape_.heads));
    const at::Tensor k = rotate(by_head(parts[1], shape_.kv_heads));
    attended = at::scaled_dot_product_attention(q, k, by_head(parts[2], shape_.kv_heads), {}, 0.0,
                                                true, std::nullopt, true)
                   .transpose(1, 2)
                   .reshape({1, shape_.tokens, shape_.hidden});
  }
  const Scope proj("proj");
  return x + at::linear(attended, layer.proj);
}

at::Tensor LlamaLayers::mlp(const Layer& layer, const at::Tensor& x) const {
  const Scope scope("mlp");
  at::Tensor h;
  {
    const Scope norm("norm");
    h = at::rms_norm(x, {shape_.hidden}, layer.norm2, 1e-5);
  }
  std::vector<at::Tensor> halves;
  {
    const Scope fc1("fc1");
    halves = at::linear(h, layer.gate_up).chunk(2, -1);
  }
  at::Tensor product;
  {
    const Scope act("act");
    product = at::silu(halves[0]) * halves[1];
  }
  const Scope fc2("fc2");
  return x + at::linear(product, layer.down);
}

at::Tensor LlamaLayers::loss(const at::Tensor& tokens) const {
  at::Tensor x = at::embedding(embedding_, tokens);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Scope scope("layers." + std::to_string(i));
    x = mlp(layers_[i], attention(layers_[i], x));
  }
  const Scope scope("head");
  const at::Tensor logits = at::linear(at::rms_norm(x, {shape_.hidden}, norm_, 1e-5), head_);
  return at::cross_entropy_loss(logits.view({-1, shape_.vocabulary}), tokens.view({-1}));
}

at::Tensor LlamaLayers::tokens() const {
  return at::randint(shape_.vocabulary, {1, shape_.tokens},
                     at::TensorOptions().device(shape_.device).dtype(at::kLong));
}

}  // namespace spillway::bench
