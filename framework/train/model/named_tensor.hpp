/// A tensor and the name that it has in the whole model, wherever it lives.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace spillway::app {

struct NamedTensor {
  std::string name;  ///< "layers.3.mlp.fc1"
  at::Tensor tensor;
};

}  // namespace spillway::app
