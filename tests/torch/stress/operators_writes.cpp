// Operators that write: in place, through detach(), through .data, and into memory that others
// manage.
#include <memory>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device.hpp"
#include "operators.hpp"

namespace spillway::testing {
namespace {

using at::Tensor;

Tensor add_in_place(Machine&, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  Tensor changed = a * 1.5;
  changed.add_(draw % 2 == 0 ? b : b.detach());
  return draw % 3 == 0 ? changed.sigmoid() : changed;
}

Tensor write_rows(Machine&, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  Tensor changed = a + 0.5;
  changed.slice(0, 2, 5).mul_(2);
  if (draw % 2 == 0) changed.select(0, 1).copy_(b.select(0, 0));
  return changed * b;
}

Tensor activate_in_place(Machine&, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  Tensor changed = a + b;
  switch (draw % 3) {
    case 0:
      return changed.relu_();
    case 1:
      return changed.tanh_();
    default:
      return changed.sigmoid_().mul(a);
  }
}

Tensor fill_in_place(Machine&, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  Tensor changed = a.clone();
  changed.masked_fill_(b.detach() > 0.5, 0.25);
  if (draw % 2 == 0) changed.index_fill_(1, at::arange(2, integers()), 0);
  return changed.square();
}

/// The base is written through a view, and is saved before by an operator that saves no input.
Tensor write_view(Machine&, std::uint32_t, const Tensor& a, const Tensor& b) {
  Tensor base = (a * 0.75).contiguous();
  const Tensor sum = base + b;
  base.view({-1}).narrow(0, 0, base.size(1)).add_(1);
  return base * sum;
}

/// Each version is saved by another operator.
Tensor accumulate(Machine&, std::uint32_t, const Tensor& a, const Tensor& b) {
  Tensor total = at::zeros_like(a).detach();
  total.add_(a.tanh());
  total.add_(b.sin(), 0.5);
  total.index_add_(0, at::arange(2, integers()), a.slice(0, 0, 2));
  return total.square();
}

Tensor detach_write(Machine&, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  const Tensor made = draw % 2 == 0 ? a + b : a.tanh().add(0.5);
  made.detach().slice(0, 0, 3).zero_();
  return made.square() + b;
}

Tensor data_write_before(Machine&, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  const Tensor made = draw % 2 == 0 ? a + b : at::cat({a, b}).narrow(0, 0, a.size(0));
  made.variable_data().narrow(0, 1, 2).mul_(0.5);
  return made.sin();
}

Tensor data_write_after(Machine&, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  const Tensor made = a + b * 0.5;
  const Tensor result = draw % 2 == 0 ? made.square() : at::gelu(made);
  made.variable_data().add_(0.25);
  return result;
}

Tensor data_write_late(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  const Tensor made = a + b * 0.5;
  const Tensor result = draw % 2 == 0 ? made.square() : at::gelu(made);
  if (machine.step() >= 1 + draw % 4) made.variable_data().mul_(0.75);
  return result;
}

/// An operator that saves its input, or, for some, its output.
Tensor reader(Machine& machine, std::uint32_t draw, const Tensor& x) {
  switch (draw % 4) {
    case 0:
      return x.square();
    case 1:
      return at::gelu(x);
    case 2:
      return at::linear(x, machine.square(draw >> 2U));
    default:
      return x * x.sigmoid();
  }
}

/// Some owners leave memory where it is in the first steps, as long as sessions record and verify.
bool is_freed(const Machine& machine, std::uint32_t draw) {
  return machine.step() >= 3 || (draw >> 8U) % 4 != 0;
}

Tensor resize(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  const Tensor made = a * 1.5 + b;
  const Tensor result = reader(machine, draw, made);
  if (!is_freed(machine, draw)) return result;
  const auto emptied = std::make_shared<EmptiedStorage>(made, nullptr);
  machine.before_backward([emptied] { emptied->refill(); });
  return result;
}

Tensor resize_by_hook(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  const Tensor made = at::silu(a * 1.5 + b);
  const Tensor result = reader(machine, draw & ~3U, made);
  if (!is_freed(machine, draw)) return result;
  const auto emptied = std::make_shared<EmptiedStorage>(made, nullptr);
  result.register_hook([emptied](const Tensor&) { emptied->refill(); });
  return result;
}

/// Makes its result in the memory of a library.
struct InArena : torch::autograd::Function<InArena> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x,
                        const std::shared_ptr<Arena>& arena) {
    Tensor out = arena->empty(x.sizes(), x.scalar_type());
    at::mul_out(out, x, at::scalar_tensor(1.5, x.options()));
    return out;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0] * 1.5, Tensor()};
  }
};

Tensor arena(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  return reader(machine, draw, InArena::apply(a + b, machine.arena()));
}

Tensor regrow(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  const Tensor made = InArena::apply(a + b, machine.arena());
  const Tensor result = reader(machine, draw >> 1U & ~3U, made);
  const auto emptied = std::make_shared<EmptiedStorage>(made, machine.arena());
  if (draw % 2 == 0) {
    machine.before_backward([emptied] { emptied->refill(); });
  } else {
    result.register_hook([emptied](const Tensor&) { emptied->refill(); });
  }
  return result;
}

Tensor gathered(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor&) {
  GatheredWeight& weight = machine.gathered();
  weight.gather();
  const Tensor result =
      draw % 2 == 0 ? at::linear(a, weight.leaf()) : at::mm(a, weight.leaf()).tanh();
  weight.release();
  machine.before_block_backward([&weight] { weight.gather(); });
  result.register_hook([&weight](const Tensor&) { weight.gather(); });
  return result;
}

}  // namespace

std::vector<OperatorRow> writing_operators() {
  using enum Feature;
  return {{"add_in_place", kInPlace, add_in_place},
          {"write_rows", kInPlace, write_rows},
          {"activate_in_place", kInPlace, activate_in_place},
          {"fill_in_place", kInPlace, fill_in_place},
          {"write_view", kInPlace, write_view},
          {"accumulate", kInPlace, accumulate},
          {"detach_write", kDetachWrite, detach_write},
          {"data_write_before", kDataWriteBefore, data_write_before},
          {"data_write_after", kDataWriteAfter, data_write_after},
          {"data_write_late", kDataWriteLate, data_write_late},
          {"resize", kResize, resize},
          {"resize_by_hook", kResizeByHook, resize_by_hook},
          {"arena", kRegrow, arena},
          {"regrow", kRegrow, regrow},
          {"gathered", kGathered, gathered}};
}

}  // namespace spillway::testing
