// Operators without side effects, in the ways models call them.
#include <ATen/ATen.h>

#include "device.hpp"
#include "operators.hpp"

namespace spillway::testing {
namespace {

using at::Tensor;

std::int64_t column(const Tensor& a, std::uint32_t draw) {
  return static_cast<std::int64_t>(draw) % a.size(1);
}

Tensor add(Machine&, std::uint32_t, const Tensor& a, const Tensor& b) { return a + b; }
Tensor mul(Machine&, std::uint32_t, const Tensor& a, const Tensor& b) { return a * b; }
Tensor square(Machine&, std::uint32_t, const Tensor& a, const Tensor&) { return a * a * 0.5; }

Tensor div(Machine&, std::uint32_t, const Tensor& a, const Tensor& b) {
  return a / (b.square() + 1);
}

Tensor scale(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor&) {
  return a * (0.5 + 0.1 * (draw % 8) + 0.01 * static_cast<double>(machine.step()));
}

Tensor mm(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor&) {
  return at::mm(a, machine.square(draw));
}

Tensor linear(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor&) {
  return at::linear(a, machine.square(draw), machine.vector(draw >> 8U));
}

Tensor activation(Machine&, std::uint32_t draw, const Tensor& a, const Tensor&) {
  switch (draw % 8) {
    case 0:
      return at::gelu(a);
    case 1:
      return at::silu(a);
    case 2:
      return at::relu(a);
    case 3:
      return a.tanh();
    case 4:
      return a.sigmoid();
    case 5:
      return a.sin();
    case 6:
      return at::softplus(a);
    default:
      return at::leaky_relu(a, 0.1);
  }
}

Tensor softmax(Machine&, std::uint32_t draw, const Tensor& a, const Tensor&) {
  return draw % 2 == 0 ? at::softmax(a, -1) : at::log_softmax(a, -1) * 0.1;
}

Tensor layer_norm(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor&) {
  if (draw % 2 == 0) return at::layer_norm(a, {a.size(1)}, {}, {}, 1e-5);
  return at::layer_norm(a, {a.size(1)}, machine.vector(0), machine.vector(1), 1e-5);
}

Tensor rms_norm(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor&) {
  const Tensor high = draw % 2 == 0 ? a : a.to(at::kFloat);
  const Tensor normal = high * at::rsqrt(high.square().mean(-1, true) + 1e-5);
  return machine.vector(draw >> 4U) * normal.to(a.scalar_type());
}

Tensor broadcast(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  switch (draw % 5) {
    case 0:
      return a * b.select(0, b.size(0) - 1);
    case 1:
      return a + b.narrow(1, column(b, draw >> 3U), 1);
    case 2:
      return a * b.mean(1, true);
    case 3:
      return a - b.sum(0, true) * 0.1;
    default:
      return a * machine.vector(draw >> 3U);
  }
}

Tensor concatenate(Machine&, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  const std::int64_t rows = a.size(0);
  if (draw % 2 == 0) return at::cat({a, b}).slice(0, rows / 2, rows / 2 + rows);
  return at::stack({a, b}, 1).select(1, static_cast<std::int64_t>(draw >> 1U) % 2);
}

Tensor gated(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor&) {
  const auto halves = at::mm(a, machine.wide(draw)).chunk(2, 1);
  return at::silu(halves[0]) * halves[1];
}

Tensor split(Machine&, std::uint32_t, const Tensor& a, const Tensor& b) {
  const auto parts = a.split(a.size(1) / 4, 1);
  return at::cat({parts[2].tanh(), parts[0], parts[3] * parts[1], parts[0].sin()}, 1) + b;
}

Tensor indexed(Machine&, std::uint32_t draw, const Tensor& a, const Tensor&) {
  const std::int64_t rows = a.size(0);
  const Tensor order =
      at::arange(rows, integers()).mul_(2 * (draw % 7) + 1).add_(draw % 5).remainder_(rows);
  if (draw % 2 == 0) return a.index_select(0, order);
  return a.gather(0, order.unsqueeze(1).expand({rows, a.size(1)}));
}

Tensor embedding(Machine& machine, std::uint32_t, const Tensor& a, const Tensor&) {
  return a + at::embedding(machine.embedding(), machine.tokens());
}

Tensor select_larger(Machine&, std::uint32_t, const Tensor& a, const Tensor& b) {
  return at::where(a > b, a, b * 0.5);
}

Tensor running_sum(Machine&, std::uint32_t, const Tensor& a, const Tensor&) {
  if (on_cuda()) return a.roll(1, 0) * 0.1;  // The sum is not deterministic there.
  return a.cumsum(0) * 0.1;
}

Tensor expand(Machine&, std::uint32_t, const Tensor& a, const Tensor& b) {
  return a.mean(1, true).expand_as(a) * b;
}

Tensor cast(Machine&, std::uint32_t draw, const Tensor& a, const Tensor&) {
  const at::ScalarType other = draw % 2 == 0 ? at::kBFloat16 : at::kDouble;
  return a.to(other).tanh().to(a.scalar_type());
}

Tensor constant(Machine&, std::uint32_t draw, const Tensor& a, const Tensor&) {
  const Tensor table =
      at::arange(a.size(1), a.options().requires_grad(false)) * (0.01 * (draw % 9));
  return a * table.cos() + at::ones_like(a).tril();
}

Tensor statistics(Machine&, std::uint32_t, const Tensor& a, const Tensor&) {
  const auto [variance, mean] = at::var_mean(a, at::IntArrayRef{1}, false, true);
  return (a - mean) * (variance + 1e-3).rsqrt();
}

Tensor empty_part(Machine&, std::uint32_t, const Tensor& a, const Tensor& b) {
  const Tensor none = b.slice(0, 0, 0);
  return a + (none * none).sum();
}

Tensor unused(Machine&, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  const Tensor never_read = (a * b).tanh().square();
  return draw % 2 == 0 ? a * 0.9 : a.sin();
}

Tensor no_grad(Machine&, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  Tensor constant;
  {
    const at::NoGradGuard guard;
    constant = (a * 2).sigmoid_().add_(b);
    if (draw % 2 == 0) constant.narrow(1, 0, 2).fill_(0.5);
  }
  return a * constant;
}

}  // namespace

std::vector<OperatorRow> common_operators() {
  using enum Feature;
  return {{"add", kCommon, add},
          {"mul", kCommon, mul},
          {"square", kCommon, square},
          {"div", kCommon, div},
          {"scale", kCommon, scale},
          {"mm", kCommon, mm},
          {"linear", kCommon, linear},
          {"activation", kCommon, activation},
          {"softmax", kCommon, softmax},
          {"layer_norm", kCommon, layer_norm},
          {"rms_norm", kCommon, rms_norm},
          {"broadcast", kCommon, broadcast},
          {"concatenate", kCommon, concatenate},
          {"gated", kCommon, gated},
          {"split", kCommon, split},
          {"indexed", kCommon, indexed},
          {"embedding", kCommon, embedding},
          {"select_larger", kCommon, select_larger},
          {"running_sum", kCommon, running_sum},
          {"expand", kCommon, expand},
          {"cast", kCommon, cast},
          {"constant", kCommon, constant},
          {"statistics", kCommon, statistics},
          {"empty_part", kCommon, empty_part},
          {"unused", kUnused, unused},
          {"no_grad", kNoGrad, no_grad}};
}

}  // namespace spillway::testing
