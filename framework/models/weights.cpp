#include "models/weights.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>

namespace spillway {

at::Tensor normal_values(at::IntArrayRef sizes, double scale, const at::TensorOptions& options) {
  const at::NoGradGuard no_gradients;
  return at::randn(sizes, options).mul_(scale);
}

at::Tensor add_weight(torch::nn::Module& module, const std::string& name, at::IntArrayRef sizes,
                      double scale, const at::TensorOptions& options) {
  return module.register_parameter(name, normal_values(sizes, scale, options));
}

at::Tensor add_constant(torch::nn::Module& module, const std::string& name, at::IntArrayRef sizes,
                        double value, const at::TensorOptions& options) {
  const at::NoGradGuard no_gradients;
  return module.register_parameter(name, at::full(sizes, value, options));
}

void adopt(torch::nn::Module& module, const torch::nn::Module& part) {
  for (const auto& each : part.named_parameters(/*recurse=*/false)) {
    module.register_parameter(each.key(), each.value());
  }
  for (const auto& each : part.named_children()) module.register_module(each.key(), each.value());
}

}  // namespace spillway
