#include "models/llama_layer.hpp"

#include <ATen/ATen.h>

#include "models/weights.hpp"
#include "spillway/torch/scope.hpp"

namespace spillway {
namespace {

constexpr double kEpsilon = 1e-5;

at::TensorOptions options_of(const LlamaShape& shape) {
  return at::TensorOptions().device(shape.device).dtype(shape.dtype);
}

at::Tensor residual(const LlamaShape& shape, bool training, const at::Tensor& x,
                    const at::Tensor& added) {
  return x + dropout_between(shape.parallel, added, shape.dropout, training);
}

/// Gate and up of a dense MLP.
class DenseFirst : public ShardedModule {
 public:
  explicit DenseFirst(const LlamaShape& shape)
      : ShardedModule(shape.parallel), gate_(add("gate", shape)), up_(add("up", shape)) {}

  [[nodiscard]] const at::Tensor& gate() const { return gate_; }
  [[nodiscard]] const at::Tensor& up() const { return up_; }

 private:
  at::Tensor add(const char* name, const LlamaShape& shape) {
    return add_part(name, normal_values({shape.ffn, shape.hidden}, 0.02, options_of(shape)), 0);
  }

  at::Tensor gate_, up_;
};

at::Tensor norm(const at::Tensor& x, const at::Tensor& weight) {
  return at::rms_norm(x, weight.sizes(), weight, kEpsilon);
}

}  // namespace

const RotaryTables& SharedRotaryTables::get() {
  if (!tables_.cos.defined()) {
    const std::int64_t head = shape_.hidden / shape_.heads;
    const auto options = at::TensorOptions().device(shape_.device).dtype(at::kFloat);
    const at::Tensor frequency = at::pow(10000.0, -at::arange(0, head, 2, options) / head);
    const at::Tensor angle = at::outer(at::arange(shape_.tokens, options), frequency);
    tables_ = {angle.cos().to(shape_.dtype), angle.sin().to(shape_.dtype)};
  }
  return tables_;
}

LlamaAttention::LlamaAttention(const LlamaShape& shape, const RotaryTables& tables)
    : ShardedModule(shape.parallel), shape_(shape) {
  const std::int64_t keys = shape.kv_heads * (shape.hidden / shape.heads);
  const auto options = options_of(shape);
  norm_ = add_constant(*this, "norm", {shape.hidden}, 1, options);
  qkv_ = add_part("qkv", normal_values({shape.hidden + 2 * keys, shape.hidden}, 0.02, options), 0,
                  {shape.hidden, keys, keys});
  proj_ = add_part("proj", normal_values({shape.hidden, shape.hidden}, 0.02, options), 1);
  cos_ = register_buffer("cos", tables.cos);
  sin_ = register_buffer("sin", tables.sin);
}

at::Tensor LlamaAttention::rotate(const at::Tensor& x) const {
  const std::int64_t length = x.size(-2);
  const bool whole = length == shape_.tokens;
  const at::Tensor cos = whole ? cos_ : cos_.narrow(0, 0, length);
  const at::Tensor sin = whole ? sin_ : sin_.narrow(0, 0, length);
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

at::Tensor LlamaAttention::forward(const at::Tensor& x) const {
  const Scope scope("attention");
  const std::int64_t head = shape_.hidden / shape_.heads;
  const std::int64_t heads = shape_.heads / parallel().ranks();
  const std::int64_t kv_heads = shape_.kv_heads / parallel().ranks();
  at::Tensor h;
  {
    const Scope scope_of_norm("norm");
    h = norm(x, norm_);
  }
  std::vector<at::Tensor> parts;
  {
    const Scope qkv("qkv");
    h = enter(parallel(), h);
    parts =
        at::linear(h, qkv_).split_with_sizes({heads * head, kv_heads * head, kv_heads * head}, -1);
  }
  const auto by_head = [&](const at::Tensor& part, std::int64_t count) {
    return part.view({h.size(0), h.size(1), count, head}).transpose(1, 2);
  };
  at::Tensor attended;
  {
    const Scope core("core");
    const at::Tensor q = rotate(by_head(parts[0], heads));
    const at::Tensor k = rotate(by_head(parts[1], kv_heads));
    attended = at::scaled_dot_product_attention(q, k, by_head(parts[2], kv_heads), {}, 0.0, true,
                                                std::nullopt, true)
                   .transpose(1, 2)
                   .reshape({h.size(0), h.size(1), heads * head});
  }
  const Scope proj("proj");
  return residual(shape_, is_training(), x, leave(parallel(), at::linear(attended, proj_)));
}

LlamaMlp::LlamaMlp(const LlamaShape& shape, int number)
    : ShardedModule(shape.parallel), shape_(shape) {
  norm_ = add_constant(*this, "norm", {shape.hidden}, 1, options_of(shape));
  if (!has_experts(shape.moe, number, shape.layers)) {
    add_dense(shape);
    return;
  }
  // Its parts are this module's own: layers.1.mlp.router, not layers.1.mlp.moe.router.
  moe_ = std::make_shared<Moe>(
      shape.moe, shape.ffn,
      MlpShape{.hidden = shape.hidden, .options = options_of(shape), .parallel = shape.parallel});
  adopt(*this, *moe_);
}

void LlamaMlp::add_dense(const LlamaShape& shape) {
  const auto first = std::make_shared<DenseFirst>(shape);
  register_module("fc1", first);
  dense_ = {first->gate(), first->up(),
            add_part("fc2", normal_values({shape.hidden, shape.ffn}, 0.02, options_of(shape)), 1)};
}

at::Tensor LlamaMlp::run_dense(const at::Tensor& h) const {
  if (!parallel().active()) return run_expert(dense_, h);
  at::Tensor all;
  {
    const Scope fc1("fc1");
    all = enter(parallel(), h);
  }
  const at::Tensor mine = run_expert(dense_, all);
  const Scope fc2("fc2");
  return leave(parallel(), mine);
}

at::Tensor LlamaMlp::forward(const at::Tensor& x) const {
  const Scope scope("mlp");
  at::Tensor h;
  {
    const Scope scope_of_norm("norm");
    h = norm(x, norm_);
  }
  const at::Tensor added = moe_ == nullptr ? run_dense(h) : moe_->forward(h);
  const Scope last(moe_ == nullptr ? "fc2" : "combine");
  return residual(shape_, is_training(), x, added);
}

LlamaLayer::LlamaLayer(const LlamaShape& shape, int number,
                       const std::shared_ptr<SharedRotaryTables>& tables)
    : attention_(
          register_module("attention", std::make_shared<LlamaAttention>(shape, tables->get()))),
      mlp_(register_module("mlp", std::make_shared<LlamaMlp>(shape, number))) {}

at::Tensor LlamaLayer::forward(const at::Tensor& x) const {
  return mlp_->forward(attention_->forward(x));
}

LlamaNorm::LlamaNorm(const LlamaShape& shape)
    : weight_(add_constant(*this, "weight", {shape.hidden}, 1, options_of(shape))) {}

at::Tensor LlamaNorm::forward(const at::Tensor& x) const { return norm(x, weight_); }

LlamaHead::LlamaHead(const LlamaShape& shape)
    : ShardedModule(shape.parallel),
      norm_(add_constant(*this, "norm", {shape.hidden}, 1, options_of(shape))),
      linear_(add_part(
          "linear", normal_values({shape.vocabulary, shape.hidden}, 0.02, options_of(shape)), 0)) {}

at::Tensor LlamaHead::forward(const at::Tensor& x) const {
  return at::linear(enter(parallel(), norm(x, norm_)), linear_);
}

}  // namespace spillway
