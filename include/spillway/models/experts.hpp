/// A mixture of experts: an MLP of which every token passes only a few parts.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace spillway {

/// The weights of one expert, or of a dense MLP.
struct Expert {
  at::Tensor gate;  ///< [ffn, hidden]
  at::Tensor up;    ///< [ffn, hidden]
  at::Tensor down;  ///< [hidden, ffn]
};

/// Gate, up and down with SiLU between. Scopes: fc1, act, fc2.
[[nodiscard]] at::Tensor run_expert(const Expert& expert, const at::Tensor& x);

struct Experts {
  at::Tensor router;  ///< [experts, hidden]
  std::vector<Expert> each;
  std::int64_t chosen = 2;  ///< How many of them see a token.
};

/// Sends every row of `x`, [rows, hidden], through the experts that its router likes best, and adds
/// up what they make of it by the router's weights. Scopes: router, and around run_expert()
/// experts. How many rows an expert gets follows from the data: the host waits for the device once.
[[nodiscard]] at::Tensor run_experts(const Experts& experts, const at::Tensor& x);

}  // namespace spillway
