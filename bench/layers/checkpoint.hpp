/// Activation checkpointing without Spillway, to compare with: each layer saves its input only and
/// recomputes its forward in backward.
#pragma once

#include "spillway/models/llama.hpp"

namespace spillway::bench {

/// Llama::loss() with every layer checkpointed.
[[nodiscard]] at::Tensor checkpointed_loss(const Llama& model, const at::Tensor& tokens,
                                           const at::Tensor& targets);

}  // namespace spillway::bench
