/// Gradients of models that tests train.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace spillway::testing {

/// The gradients so far, which are cleared.
inline std::vector<at::Tensor> take_gradients(std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> taken;
  for (at::Tensor& parameter : parameters) {
    taken.push_back(parameter.grad());
    parameter.mutable_grad() = at::Tensor();
  }
  return taken;
}

}  // namespace spillway::testing
