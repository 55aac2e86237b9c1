/// Parameters of modules.
#pragma once

#include <cstdint>
#include <string>

#include <torch/nn/module.h>

namespace spillway {

/// Normally distributed values, `scale` wide.
[[nodiscard]] at::Tensor normal_values(at::IntArrayRef sizes, double scale,
                                       const at::TensorOptions& options);

/// Registers a parameter of normally distributed values, `scale` wide.
at::Tensor add_weight(torch::nn::Module& module, const std::string& name, at::IntArrayRef sizes,
                      double scale, const at::TensorOptions& options);

/// Registers a parameter of one value.
at::Tensor add_constant(torch::nn::Module& module, const std::string& name, at::IntArrayRef sizes,
                        double value, const at::TensorOptions& options);

/// Registers the parameters and modules of `part`, which `module` keeps, as its own, under the same
/// names.
void adopt(torch::nn::Module& module, const torch::nn::Module& part);

}  // namespace spillway
