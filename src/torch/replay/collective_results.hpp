/// Results of collectives may be incomplete when they return; internal.
#pragma once

#include <ATen/core/stack.h>

#include "torch/hooks/operator_traits.hpp"

namespace spillway {

/// When the caller of a collective may read its results.
enum class ResultsReady {
  kOnReturn,   ///< On a GPU: by what is queued on the current stream from then on.
  kAfterWait,  ///< When the operator that waits for them has returned.
  kUnknown     ///< After a wait for a handle that the session does not see.
};
[[nodiscard]] ResultsReady results_of(const OperatorTraits& collective);

/// Whether the operator waits for the results of a collective.
[[nodiscard]] bool waits_for_results(const OperatorTraits& traits);

/// Makes this thread, and on a GPU its current stream, wait for the results of the collective:
/// through its handle, or through the operator that waits for a tensor.
void wait_for_results(const OperatorTraits& collective, const torch::jit::Stack& results);

}  // namespace spillway
