/// What people do without Spillway: each layer keeps its input only, and runs forward again in
/// backward.
#pragma once

#include "spillway/models/llama.hpp"

namespace spillway::bench {

/// As Llama::loss(), every layer checkpointed.
[[nodiscard]] at::Tensor checkpointed_loss(const Llama& model, const at::Tensor& tokens,
                                           const at::Tensor& targets);

}  // namespace spillway::bench
