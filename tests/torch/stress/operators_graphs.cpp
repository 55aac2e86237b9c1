// Nodes of the program's own, graphs within graphs, and the table of all operators.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device.hpp"
#include "operators.hpp"

namespace spillway::testing {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Saves an input, an output and a value of its own.
struct Swish : torch::autograd::Function<Swish> {
  static Tensor forward(AutogradContext* context, const Tensor& x) {
    const Tensor gate = at::sigmoid(x);
    Tensor y = x * gate;
    context->save_for_backward({x, gate, y});
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0] * (saved[1] + saved[2] * (1 - saved[1]))};
  }
};

/// Holds a tensor where autograd does not look; the same storage is saved, too.
struct Holder : torch::autograd::Function<Holder> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& scale) {
    const Tensor cosine = x.cos();
    context->saved_data["cosine"] = cosine;
    context->saved_data["x"] = x;
    context->save_for_backward({scale, cosine.t()});
    return x.sin() * scale;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor cosine = context->saved_data["cosine"].toTensor();
    const Tensor x = context->saved_data["x"].toTensor();
    return {gradients[0] * saved[0] * cosine, (gradients[0] * x.sin() * saved[1].t().abs()).sum(0)};
  }
};

/// Runs its part again in backward, as torch's own checkpoint does.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static Tensor part(const Tensor& x, const Tensor& weight) {
    return at::gelu(at::mm(x, weight)).tanh() * x;
  }
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight) {
    context->save_for_backward({x, weight});
    return part(x, weight);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor x = saved[0].detach().set_requires_grad(true);
    const Tensor weight = saved[1].detach().set_requires_grad(true);
    const at::AutoGradMode with_gradients(true);
    const Tensor again = part(x, weight);
    return torch::autograd::grad({again}, {x, weight}, {gradients[0]});
  }
};

Tensor swish(Machine&, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  return draw % 2 == 0 ? Swish::apply(a) : Swish::apply(Swish::apply(a + b) * 2);
}

Tensor holder(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor&) {
  return Holder::apply(a, machine.vector(draw));
}

Tensor checkpoint(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor&) {
  return Checkpoint::apply(a, machine.square(draw));
}

/// A penalty on a gradient: its graph is part of the step's graph.
Tensor gradient_of_part(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor&) {
  const Tensor& weight = machine.square(draw);
  // The weight may be used before, too. Then the way there must be one that backward may go now.
  const Tensor from = machine.backward_is_prepared() ? a.detach() : a;
  const Tensor part = at::mm(from, weight).tanh().square().sum();
  const variable_list gradients = torch::autograd::grad({part}, {weight}, {}, true, true);
  return at::mm(a, gradients[0]) * 0.01;
}

/// Gradients that the step's graph does not go through.
Tensor gradient_as_constant(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor&) {
  const Tensor& weight = machine.square(draw);
  const Tensor inner = at::mm(a.detach(), weight).sigmoid().sum();
  const variable_list gradients = torch::autograd::grad({inner}, {weight});
  return at::mm(a, gradients[0].clamp(-0.5, 0.5));
}

}  // namespace

std::vector<OperatorRow> graph_operators() {
  using enum Feature;
  return {{"swish", kSavingFunction, swish},
          {"holder", kContextFunction, holder},
          {"checkpoint", kCheckpoint, checkpoint},
          {"gradient_of_part", kGradInForward, gradient_of_part},
          {"gradient_as_constant", kGradInForward, gradient_as_constant}};
}

const std::vector<OperatorRow>& operators() {
  static const std::vector<OperatorRow> kAll = [] {
    std::vector<OperatorRow> all;
    for (auto* const group :
         {common_operators, layer_operators, writing_operators, graph_operators}) {
      for (const OperatorRow& each : group()) all.push_back(each);
    }
    if (on_cuda()) {
      for (const OperatorRow& each : stream_operators()) all.push_back(each);
    }
    return all;
  }();
  return kAll;
}

}  // namespace spillway::testing
