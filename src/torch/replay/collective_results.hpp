/// What collectives give is not there when they return; internal.
#pragma once

#include <ATen/core/stack.h>

#include "torch/hooks/operator_traits.hpp"

namespace spillway {

/// When the results of a collective may be read by whoever called it.
enum class ResultsThere {
  kOnReturn,    ///< On a GPU: by what is queued on the current stream from then on.
  kAfterWait,   ///< When the operator that waits for them has returned.
  kNobodyKnows  ///< When somebody has waited for a handle.
};
[[nodiscard]] ResultsThere results_of(const OperatorTraits& collective);

/// The operator that waits for one.
[[nodiscard]] bool waits_for_results(const OperatorTraits& traits);

/// Makes this thread, and on a GPU its current stream, wait for what the collective gave, whether
/// by a handle to wait on or as tensors that are waited for by an operator of their own.
void wait_for_results(const OperatorTraits& collective, const torch::jit::Stack& results);

}  // namespace spillway
