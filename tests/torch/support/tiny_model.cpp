#include "tiny_model.hpp"

#include <algorithm>
#include <cstring>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "spillway/torch/scope.hpp"

namespace spillway::testing {

TinyModel::TinyModel(const TinyOptions& options) : options_(options) {
  at::set_num_threads(1);  // Several sessions on few cores: more threads would be slower.
  at::manual_seed(7);
  const std::int64_t hidden = options.hidden;
  embedding_ = make({options.vocabulary, hidden});
  for (int i = 0; i < options.layers; ++i) {
    layers_.push_back({make({hidden}), make({3 * hidden, hidden}), make({hidden, hidden}),
                       make({hidden}), make({4 * hidden, hidden}), make({hidden, 4 * hidden})});
  }
  head_ = options.tied ? embedding_ : make({options.vocabulary, hidden});
}

at::Tensor TinyModel::make(std::vector<std::int64_t> sizes) {
  const bool norm = sizes.size() == 1;
  at::Tensor tensor = (at::randn(sizes) * (norm ? 0.1 : 0.05) + (norm ? 1.0 : 0.0))
                          .to(options_.device, options_.dtype)
                          .detach()
                          .set_requires_grad(true);
  parameters_.push_back(tensor);
  return tensor;
}

at::Tensor TinyModel::layer(const Layer& weights, const at::Tensor& input) const {
  const std::int64_t hidden = options_.hidden;
  at::Tensor x = input;
  {
    const Scope scope("attention");
    at::Tensor h;
    {
      const Scope norm("norm");
      h = at::layer_norm(x, {hidden}, weights.norm1, {}, 1e-5);
    }
    at::Tensor qkv;
    {
      const Scope linear("qkv");
      qkv = at::linear(h, weights.qkv);
    }
    const Scope core("core");
    const auto parts = qkv.view({x.size(0), x.size(1), 3, 4, hidden / 4}).permute({2, 0, 3, 1, 4});
    const at::Tensor attended =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    const at::Tensor merged = attended.transpose(1, 2).reshape({x.size(0), x.size(1), hidden});
    x = x + at::dropout(at::linear(merged, weights.proj), options_.dropout, true);
  }
  const Scope scope("mlp");
  const at::Tensor up =
      at::linear(at::layer_norm(x, {hidden}, weights.norm2, {}, 1e-5), weights.up);
  return x + at::dropout(at::linear(at::gelu(up), weights.down), options_.dropout, true);
}

at::Tensor TinyModel::hidden(const at::Tensor& tokens, const std::vector<bool>& dropped) const {
  at::Tensor x = at::embedding(embedding_, tokens);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (i < dropped.size() && dropped[i]) continue;
    const Scope scope("layers." + std::to_string(i));
    x = layer(layers_[i], x);
  }
  return x;
}

at::Tensor TinyModel::loss(const at::Tensor& tokens, const std::vector<bool>& dropped) const {
  const at::Tensor logits = at::linear(hidden(tokens, dropped), head_).to(at::kFloat);
  return at::cross_entropy_loss(logits.view({-1, options_.vocabulary}), tokens.view({-1}));
}

at::Tensor TinyModel::tokens(std::int64_t batch, std::int64_t length, int seed) const {
  at::manual_seed(static_cast<std::uint64_t>(seed));
  return at::randint(options_.vocabulary, {batch, length}, at::kLong).to(options_.device);
}

std::vector<at::Tensor> TinyModel::gradients() const {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters_) {
    gradients.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
  }
  return gradients;
}

void TinyModel::zero_gradients() {
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
}

void TinyModel::update() {
  const at::NoGradGuard guard;
  for (at::Tensor& parameter : parameters_) {
    if (parameter.grad().defined()) parameter.add_(parameter.grad(), -0.05);
  }
}

Deterministic::Deterministic() { at::globalContext().setDeterministicAlgorithms(true, false); }

Deterministic::~Deterministic() { at::globalContext().setDeterministicAlgorithms(false, false); }

namespace {

/// Bit for bit, so that a NaN equals itself.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor x = a.cpu().contiguous();
  const at::Tensor y = b.cpu().contiguous();
  return std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

}  // namespace

int count_different(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  int different = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i].defined() != b[i].defined()) {
      ++different;
    } else if (a[i].defined() && !same_bits(a[i], b[i])) {
      ++different;
    }
  }
  return different;
}

}  // namespace spillway::testing
