// Operators with state or memory layouts of their own: attention, normalisation, random numbers,
// views.
#include <ATen/ATen.h>

#include "device.hpp"
#include "operators.hpp"

namespace spillway::testing {
namespace {

using at::Tensor;

Tensor attention(Machine&, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  const std::int64_t rows = a.size(0);
  const std::int64_t width = a.size(1);
  const auto heads = [&](const Tensor& x) {
    return x.reshape({1, rows, 4, width / 4}).transpose(1, 2);
  };
  const Tensor out =
      at::scaled_dot_product_attention(heads(a), heads(b), heads(a + b), {}, 0.0, draw % 2 == 0);
  return out.transpose(1, 2).reshape({rows, width});
}

Tensor attention_by_hand(Machine&, std::uint32_t, const Tensor& a, const Tensor& b) {
  const std::int64_t rows = a.size(0);
  const std::int64_t width = a.size(1);
  const Tensor q = a.reshape({rows, 2, width / 2}).transpose(0, 1);
  const Tensor k = b.reshape({rows, 2, width / 2}).permute({1, 2, 0});
  const Tensor mask = at::ones({rows, rows}, booleans()).triu(1);
  const Tensor scores = at::bmm(q, k).mul(0.3).masked_fill(mask, -1e4);
  return at::bmm(at::softmax(scores, -1), q).transpose(0, 1).reshape({rows, width});
}

Tensor batch_norm(Machine& machine, std::uint32_t, const Tensor& a, const Tensor&) {
  return at::batch_norm(a, machine.vector(0), machine.vector(1), machine.statistics()[0],
                        machine.statistics()[1], true, 0.1, 1e-5, false);
}

Tensor convolution(Machine& machine, std::uint32_t, const Tensor& a, const Tensor&) {
  const Tensor image = a.t().unsqueeze(0);
  const Tensor out = at::conv1d(image, machine.filter(), {}, 1, 1, 1, a.size(1));
  return out.squeeze(0).t();
}

Tensor dropout(Machine&, std::uint32_t, const Tensor& a, const Tensor&) {
  return at::dropout(a, 0.2, true);
}

Tensor noise(Machine&, std::uint32_t draw, const Tensor& a, const Tensor&) {
  if (draw % 2 == 0) return a * at::rand_like(a);
  return a + at::randn_like(a) * 0.1;
}

Tensor shuffle(Machine&, std::uint32_t, const Tensor& a, const Tensor&) {
  return a.index_select(0, at::randperm(a.size(0), integers()));
}

Tensor own_dropout(Machine& machine, std::uint32_t, const Tensor& a, const Tensor&) {
  const Tensor mask = at::empty_like(a).detach().bernoulli_(0.8, machine.generator());
  return a * mask.div_(0.8);
}

Tensor own_noise(Machine& machine, std::uint32_t, const Tensor& a, const Tensor& b) {
  const Tensor noise = at::rand(a.sizes(), machine.generator(), a.options().requires_grad(false));
  return a * noise + b;
}

/// Another view of the same storage.
Tensor view(Machine&, std::uint32_t draw, const Tensor& a, const Tensor&) {
  switch (draw % 5) {
    case 0:
      return a.unsqueeze(0).squeeze(0);
    case 1:
      return a.t().t();
    case 2:
      return a.narrow(0, 0, a.size(0));
    case 3:
      return a.reshape({-1}).view({a.size(0), a.size(1)});
    default:
      return a.as_strided(a.sizes(), a.strides(), a.storage_offset());
  }
}

/// Its memory is not in the order of its sizes.
Tensor transposed(Machine&, std::uint32_t, const Tensor& a, const Tensor&) {
  return (a * 1.25).t().contiguous().t();
}

/// Parts of one storage are saved by several operators.
Tensor parts(Machine&, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  const Tensor base = a + b * 0.5;
  const std::int64_t half = base.size(0) / 2;
  const Tensor top = base.narrow(0, 0, half).square();
  const Tensor rest = base.narrow(0, half, base.size(0) - half);
  const Tensor low = draw % 2 == 0 ? rest.sin() : rest * rest.sigmoid();
  return at::cat({top, low}) * base.t().tanh().t();
}

/// A part keeps the whole storage.
Tensor small_part(Machine&, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  const Tensor base = at::cat({a, b, a}, 1);
  const Tensor part = base.narrow(1, static_cast<std::int64_t>(draw % 3) * a.size(1), a.size(1));
  return part.exp().clamp(0, 2);
}

}  // namespace

std::vector<OperatorRow> layer_operators() {
  using enum Feature;
  return {
      {"attention", kAttention, attention},   {"attention_by_hand", kAttention, attention_by_hand},
      {"batch_norm", kBatchNorm, batch_norm}, {"conv1d", kConvolution, convolution},
      {"dropout", kDropout, dropout},         {"noise", kDropout, noise},
      {"shuffle", kDropout, shuffle},         {"own_dropout", kGenerator, own_dropout},
      {"own_noise", kGenerator, own_noise},   {"view", kViews, view},
      {"transposed", kViews, transposed},     {"parts", kViews, parts},
      {"small_part", kViews, small_part}};
}

}  // namespace spillway::testing
