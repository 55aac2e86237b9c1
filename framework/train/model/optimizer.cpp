#include "train/model/optimizer.hpp"

#include <map>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>

#include "spillway/core/error.hpp"

namespace spillway::app {
namespace {

using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw InvalidArgument("optimizer", "the state of " + name + " " + why);
}

}  // namespace

Optimizer::Optimizer(std::vector<NamedTensor> parameters, const OptimizerConfig& config)
    : parameters_(std::move(parameters)) {
  AdamWOptions options(config.learning_rate);
  options.betas({config.beta1, config.beta2}).eps(config.epsilon);
  std::vector<at::Tensor> matrices;
  std::vector<at::Tensor> vectors;
  for (const NamedTensor& each : parameters_) {
    (each.tensor.dim() > 1 ? matrices : vectors).push_back(each.tensor);
  }
  std::vector<torch::optim::OptimizerParamGroup> groups;
  const auto add = [&](std::vector<at::Tensor> tensors, double decay) {
    if (tensors.empty()) return;
    options.weight_decay(decay);
    groups.emplace_back(std::move(tensors), std::make_unique<AdamWOptions>(options));
  };
  add(std::move(matrices), config.weight_decay);
  add(std::move(vectors), 0);
  adam_ = std::make_unique<torch::optim::AdamW>(groups, options);
  for (const NamedTensor& each : parameters_) {
    auto state = std::make_unique<AdamWParamState>();
    state->exp_avg(at::zeros_like(each.tensor, at::MemoryFormat::Preserve));
    state->exp_avg_sq(at::zeros_like(each.tensor, at::MemoryFormat::Preserve));
    adam_->state()[each.tensor.unsafeGetTensorImpl()] = std::move(state);
  }
}

void Optimizer::step(double learning_rate) {
  for (torch::optim::OptimizerParamGroup& group : adam_->param_groups()) {
    group.options().set_lr(learning_rate);
  }
  adam_->step();
}

void Optimizer::zero_gradients() {
  for (const NamedTensor& each : parameters_) {
    at::Tensor& gradient = each.tensor.mutable_grad();
    if (gradient.defined()) {
      gradient.zero_();
    } else {
      gradient = at::zeros_like(each.tensor);
    }
  }
}

std::vector<at::Tensor> Optimizer::gradients() const {
  std::vector<at::Tensor> gradients;
  for (const NamedTensor& each : parameters_) gradients.push_back(each.tensor.grad());
  return gradients;
}

AdamWParamState& Optimizer::state_of(const NamedTensor& parameter) const {
  return static_cast<AdamWParamState&>(*adam_->state().at(parameter.tensor.unsafeGetTensorImpl()));
}

std::vector<NamedTensor> Optimizer::state() const {
  std::vector<NamedTensor> state;
  for (const NamedTensor& each : parameters_) {
    const AdamWParamState& found = state_of(each);
    state.push_back({each.name + ".exp_avg", found.exp_avg()});
    state.push_back({each.name + ".exp_avg_sq", found.exp_avg_sq()});
    state.push_back({each.name + ".step", at::scalar_tensor(found.step(), at::kLong)});
  }
  return state;
}

void Optimizer::set_state(const std::vector<NamedTensor>& state) {
  std::map<std::string, at::Tensor> given;
  for (const NamedTensor& each : state) given.emplace(each.name, each.tensor);
  // state() gives the tensors themselves, so all but the count is copied right into place.
  const std::vector<NamedTensor> own = this->state();
  for (const NamedTensor& each : own) {
    const auto found = given.find(each.name);
    if (found == given.end()) refuse(each.name, "is missing");
    if (found->second.sizes() != each.tensor.sizes() ||
        found->second.scalar_type() != each.tensor.scalar_type()) {
      refuse(each.name, "has another shape or type than the parameter's");
    }
  }
  const at::NoGradGuard no_grad;
  for (const NamedTensor& each : own) each.tensor.copy_(given.at(each.name));
  for (const NamedTensor& each : parameters_) {
    state_of(each).step(given.at(each.name + ".step").item<std::int64_t>());
  }
}

}  // namespace spillway::app
