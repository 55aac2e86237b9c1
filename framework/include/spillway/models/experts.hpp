/// A dense MLP with a gate.
#pragma once

#include <ATen/core/Tensor.h>

namespace spillway {

/// Its weights.
struct Expert {
  at::Tensor gate;  ///< [ffn, hidden]
  at::Tensor up;    ///< [ffn, hidden]
  at::Tensor down;  ///< [hidden, ffn]
};

/// Gate, up and down with SiLU between. Scopes: fc1, act, fc2.
[[nodiscard]] at::Tensor run_expert(const Expert& expert, const at::Tensor& x);

}  // namespace spillway
