#include "spillway/models/llama.hpp"

#include <utility>

#include <ATen/ATen.h>

#include "spillway/core/error.hpp"
#include "spillway/torch/scope.hpp"

namespace spillway {
namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw InvalidArgument("model", what);
}

}  // namespace

void check(const LlamaShape& shape) {
  const auto text = [](std::int64_t number) { return std::to_string(number); };
  for (const auto& [name, number] : {std::pair<const char*, std::int64_t>{"layers", shape.layers},
                                     {"hidden", shape.hidden},
                                     {"heads", shape.heads},
                                     {"kv_heads", shape.kv_heads},
                                     {"ffn", shape.ffn},
                                     {"tokens", shape.tokens},
                                     {"vocabulary", shape.vocabulary}}) {
    require(number > 0, std::string(name) + " = " + text(number) + ": at least 1 wanted");
  }
  require(shape.hidden % (2 * shape.heads) == 0,
          "hidden = " + text(shape.hidden) + " and heads = " + text(shape.heads) +
              ": each head must be of the same even width; give a multiple of " +
              text(2 * shape.heads) + " as hidden");
  require(shape.heads % shape.kv_heads == 0,
          "kv_heads = " + text(shape.kv_heads) + " must divide heads = " + text(shape.heads));
  require(
      shape.experts == 0 || (shape.chosen_experts >= 1 && shape.chosen_experts <= shape.experts),
      "chosen_experts = " + text(shape.chosen_experts) + " of experts = " + text(shape.experts) +
          ": at least 1 and not more than there are wanted");
  require(shape.experts >= 0 && shape.expert_ffn >= 0,
          "experts = " + text(shape.experts) + ", expert_ffn = " + text(shape.expert_ffn) +
              ": at least 0 wanted");
  require(shape.dropout >= 0 && shape.dropout < 1,
          "dropout = " + std::to_string(shape.dropout) + ": from 0 to less than 1 wanted");
}

Llama::Llama(const LlamaShape& shape) : shape_(shape) {
  check(shape);
  at::manual_seed(shape.seed);
  const std::int64_t head = shape.hidden / shape.heads;
  embedding_ = weight("embedding", {shape.vocabulary, shape.hidden}, 1);
  for (int i = 0; i < shape.layers; ++i) {
    const std::string name = "layers." + std::to_string(i);
    const std::int64_t qkv = (shape.heads + 2 * shape.kv_heads) * head;
    Layer layer;
    layer.norm1 = weight(name + ".attention.norm", {shape.hidden}, 0);
    layer.qkv = weight(name + ".attention.qkv", {qkv, shape.hidden}, 0.02);
    layer.proj = weight(name + ".attention.proj", {shape.hidden, shape.hidden}, 0.02);
    layer.norm2 = weight(name + ".mlp.norm", {shape.hidden}, 0);
    const bool dense = shape.experts == 0 || i % 2 == 0;
    if (dense) layer.dense = expert(name + ".mlp.fc1", name + ".mlp.fc2", shape.ffn);
    if (!dense) layer.experts = experts(name + ".mlp");
    layers_.push_back(std::move(layer));
  }
  norm_ = weight("head.norm", {shape.hidden}, 0);
  head_ = weight("head.linear", {shape.vocabulary, shape.hidden}, 0.02);
  const auto options = at::TensorOptions().device(shape.device).dtype(at::kFloat);
  const at::Tensor frequency = at::pow(10000.0, -at::arange(0, head, 2, options) / head);
  const at::Tensor angle = at::outer(at::arange(shape.tokens, options), frequency);
  cos_ = angle.cos().to(shape.dtype);
  sin_ = angle.sin().to(shape.dtype);
}

at::Tensor Llama::weight(std::string name, std::vector<std::int64_t> sizes, double scale) {
  const auto options = at::TensorOptions().device(shape_.device).dtype(shape_.dtype);
  at::Tensor tensor = scale == 0 ? at::ones(sizes, options) : at::randn(sizes, options) * scale;
  tensor = tensor.detach().set_requires_grad(true);
  parameters_.push_back(tensor);
  names_.push_back(std::move(name));
  return tensor;
}

Expert Llama::expert(const std::string& first, const std::string& second, std::int64_t ffn) {
  at::Tensor gate = weight(first + ".gate", {ffn, shape_.hidden}, 0.02);
  at::Tensor up = weight(first + ".up", {ffn, shape_.hidden}, 0.02);
  return {std::move(gate), std::move(up), weight(second, {shape_.hidden, ffn}, 0.02)};
}

Experts Llama::experts(const std::string& mlp) {
  Experts experts;
  experts.chosen = shape_.chosen_experts;
  experts.router = weight(mlp + ".router", {shape_.experts, shape_.hidden}, 0.02);
  const std::int64_t ffn = shape_.expert_ffn == 0 ? shape_.ffn : shape_.expert_ffn;
  for (int i = 0; i < shape_.experts; ++i) {
    const std::string name = mlp + ".experts." + std::to_string(i);
    experts.each.push_back(expert(name + ".fc1", name + ".fc2", ffn));
  }
  return experts;
}

at::Tensor Llama::rotate(const at::Tensor& x) const {
  const std::int64_t length = x.size(-2);
  const bool whole = length == shape_.tokens;
  const at::Tensor cos = whole ? cos_ : cos_.narrow(0, 0, length);
  const at::Tensor sin = whole ? sin_ : sin_.narrow(0, 0, length);
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

at::Tensor Llama::residual(const at::Tensor& x, const at::Tensor& added) const {
  return x + (shape_.dropout > 0 ? at::dropout(added, shape_.dropout, true) : added);
}

at::Tensor Llama::attention(const Layer& layer, const at::Tensor& x) const {
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
    return part.view({x.size(0), x.size(1), heads, head}).transpose(1, 2);
  };
  at::Tensor attended;
  {
    const Scope core("core");
    const at::Tensor q = rotate(by_head(parts[0], shape_.heads));
    const at::Tensor k = rotate(by_head(parts[1], shape_.kv_heads));
    attended = at::scaled_dot_product_attention(q, k, by_head(parts[2], shape_.kv_heads), {}, 0.0,
                                                true, std::nullopt, true)
                   .transpose(1, 2)
                   .reshape({x.size(0), x.size(1), shape_.hidden});
  }
  const Scope proj("proj");
  return residual(x, at::linear(attended, layer.proj));
}

at::Tensor Llama::mlp(const Layer& layer, const at::Tensor& x) const {
  const Scope scope("mlp");
  at::Tensor h;
  {
    const Scope norm("norm");
    h = at::rms_norm(x, {shape_.hidden}, layer.norm2, 1e-5);
  }
  const bool dense = layer.experts.each.empty();
  const at::Tensor added =
      dense ? run_expert(layer.dense, h) : run_experts(layer.experts, h.flatten(0, -2)).view_as(x);
  const Scope last(dense ? "fc2" : "experts");
  return residual(x, added);
}

at::Tensor Llama::loss(const at::Tensor& tokens, const at::Tensor& targets) const {
  if (tokens.dim() != 2 || tokens.sizes() != targets.sizes() || tokens.size(1) > shape_.tokens) {
    throw InvalidArgument("model",
                          "tokens and targets of sizes [batch, length] wanted, length at most " +
                              std::to_string(shape_.tokens) + "; make both of one size");
  }
  at::Tensor x = embed(tokens);
  for (int i = 0; i < shape_.layers; ++i) x = run_layer(i, x);
  return predict(x, targets);
}

at::Tensor Llama::embed(const at::Tensor& tokens) const {
  return at::embedding(embedding_, tokens);
}

at::Tensor Llama::run_layer(int layer, const at::Tensor& x) const {
  const Scope scope("layers." + std::to_string(layer));
  const Layer& weights = layers_[static_cast<std::size_t>(layer)];
  return mlp(weights, attention(weights, x));
}

at::Tensor Llama::predict(const at::Tensor& x, const at::Tensor& targets) const {
  const Scope scope("head");
  const at::Tensor logits = at::linear(at::rms_norm(x, {shape_.hidden}, norm_, 1e-5), head_);
  return at::cross_entropy_loss(logits.view({-1, shape_.vocabulary}), targets.reshape({-1}));
}

}  // namespace spillway
