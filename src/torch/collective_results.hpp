/// What collectives give is not there when they return; internal.
#pragma once

#include <ATen/core/stack.h>

#include "operator_traits.hpp"

namespace spillway {

/// Makes this thread, and on a GPU its current stream, wait for what the collective gave, whether
/// by a handle to wait on or as tensors that are waited for by an operator of their own.
void wait_for_results(const OperatorTraits& collective, const torch::jit::Stack& results);

}  // namespace spillway
