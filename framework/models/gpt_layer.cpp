#include "models/gpt_layer.hpp"

#include <cmath>

#include <ATen/ATen.h>

#include "models/weights.hpp"
#include "spillway/torch/scope.hpp"

namespace spillway {
namespace {

at::TensorOptions options_of(const GptShape& shape) {
  return at::TensorOptions().device(shape.device).dtype(shape.dtype);
}

template <typename Module>
at::Tensor in_scope(const char* name, const Module& module, const at::Tensor& x) {
  const Scope scope(name);
  return module.forward(x);
}

/// Of the layers that add to the residual stream, so that it does not grow with the depth.
double residual_scale(const GptShape& shape) { return 0.02 / std::sqrt(2.0 * shape.layers); }

}  // namespace

GptPositions::GptPositions(const GptShape& shape)
    : dropout_(shape.dropout),
      parallel_(shape.parallel),
      weight_(add_weight(*this, "weight", {shape.tokens, shape.hidden}, 0.01, options_of(shape))) {}

at::Tensor GptPositions::forward(const at::Tensor& x) const {
  const std::int64_t length = x.size(1);
  const std::int64_t begin = parallel_.sequence ? parallel_.rank() * length : 0;
  return dropout_between(parallel_, x + weight_.narrow(0, begin, length), dropout_, is_training());
}

GptNorm::GptNorm(const GptShape& shape)
    : weight_(add_constant(*this, "weight", {shape.hidden}, 1, options_of(shape))),
      bias_(add_constant(*this, "bias", {shape.hidden}, 0, options_of(shape))) {}

at::Tensor GptNorm::forward(const at::Tensor& x) const {
  return at::layer_norm(x, weight_.sizes(), weight_, bias_);
}

GptAttention::GptAttention(const GptShape& shape)
    : shape_(shape), norm_(register_module("norm", std::make_shared<GptNorm>(shape))) {
  const std::int64_t hidden = shape.hidden;
  const auto options = options_of(shape);
  qkv_ =
      register_module("qkv", std::make_shared<ColumnLinear>(
                                 shape.parallel, normal_values({3 * hidden, hidden}, 0.02, options),
                                 at::zeros({3 * hidden}, options),
                                 std::vector<std::int64_t>{hidden, hidden, hidden}));
  proj_ = register_module(
      "proj", std::make_shared<RowLinear>(
                  shape.parallel, normal_values({hidden, hidden}, residual_scale(shape), options),
                  at::zeros({hidden}, options)));
}

at::Tensor GptAttention::forward(const at::Tensor& x) const {
  const Scope scope("attention");
  const at::Tensor whole = in_scope("qkv", *qkv_, in_scope("norm", *norm_, x));
  const auto qkv = whole.chunk(3, -1);
  const std::int64_t heads = shape_.heads / shape_.parallel.ranks();
  const std::int64_t head = shape_.hidden / shape_.heads;
  const auto by_head = [&](const at::Tensor& part) {
    return part.view({whole.size(0), whole.size(1), heads, head}).transpose(1, 2);
  };
  at::Tensor attended;
  {
    const Scope core("core");
    const double dropout = is_training() ? shape_.dropout : 0.0;
    std::optional<ShardedRandom> random;
    if (dropout > 0) random.emplace(shape_.parallel, x.device());
    attended = at::scaled_dot_product_attention(by_head(qkv[0]), by_head(qkv[1]), by_head(qkv[2]),
                                                {}, dropout, true)
                   .transpose(1, 2)
                   .reshape({whole.size(0), whole.size(1), heads * head});
  }
  const Scope proj("proj");
  return x +
         dropout_between(shape_.parallel, proj_->forward(attended), shape_.dropout, is_training());
}

GptMlp::GptMlp(const GptShape& shape, int number)
    : shape_(shape), norm_(register_module("norm", std::make_shared<GptNorm>(shape))) {
  const auto options = options_of(shape);
  if (has_experts(shape.moe, number, shape.layers)) {
    moe_ = std::make_shared<Moe>(shape.moe, shape.ffn,
                                 MlpShape{.hidden = shape.hidden,
                                          .gated = false,
                                          .output_scale = residual_scale(shape),
                                          .options = options,
                                          .parallel = shape.parallel});
    adopt(*this, *moe_);
    return;
  }
  fc1_ = register_module(
      "fc1", std::make_shared<ColumnLinear>(shape.parallel,
                                            normal_values({shape.ffn, shape.hidden}, 0.02, options),
                                            at::zeros({shape.ffn}, options)));
  fc2_ = register_module(
      "fc2",
      std::make_shared<RowLinear>(
          shape.parallel, normal_values({shape.hidden, shape.ffn}, residual_scale(shape), options),
          at::zeros({shape.hidden}, options)));
}

at::Tensor GptMlp::forward(const at::Tensor& x) const {
  const Scope scope("mlp");
  const at::Tensor normed = in_scope("norm", *norm_, x);
  if (moe_ != nullptr) {
    const at::Tensor added = moe_->forward(normed);
    const Scope combine("combine");
    return x + dropout_between(shape_.parallel, added, shape_.dropout, is_training());
  }
  const at::Tensor wide = in_scope("fc1", *fc1_, normed);
  at::Tensor bent;
  {
    const Scope act("act");
    bent = at::gelu(wide, "tanh");
  }
  const Scope fc2("fc2");
  return x + dropout_between(shape_.parallel, fc2_->forward(bent), shape_.dropout, is_training());
}

GptLayer::GptLayer(const GptShape& shape, int number)
    : attention_(register_module("attention", std::make_shared<GptAttention>(shape))),
      mlp_(register_module("mlp", std::make_shared<GptMlp>(shape, number))) {}

at::Tensor GptLayer::forward(const at::Tensor& x) const {
  return mlp_->forward(attention_->forward(x));
}

}  // namespace spillway
