/// Which calls of a replay one kernel can repeat; internal.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "torch/device/chain_program.hpp"
#include "torch/graph/recipe_book.hpp"

namespace spillway {

/// A call that computes each element of its one result from the elements at the same position.
struct ElementwiseCall {
  struct Operand {
    const TensorArgument* argument = nullptr;  ///< Null: no operand.
    ChainProgram::Access access = ChainProgram::Access::kFull;
  };

  ChainProgram::Operation operation = ChainProgram::Operation::kMul;
  std::array<Operand, 2> operands;
  at::ScalarType dtype = at::kFloat;
  ValueId result = -1;
  std::int64_t elements = 0;  ///< Of the result.
  std::int64_t inner = 0;     ///< Of a row of the result.
};

/// Empty for a call that a generated kernel cannot repeat: another operator, other types, memory
/// that is not contiguous. Lifetime: `call` outlives it.
[[nodiscard]] std::optional<ElementwiseCall> elementwise(const RecipeBook& book, const Call& call);

/// The calls in an order in which they can run, grouped by what one kernel can repeat: consecutive
/// elementwise calls of one shape, also across other calls that do not read their results.
[[nodiscard]] std::vector<std::vector<CallId>> chains_of(const RecipeBook& book,
                                                         const std::vector<CallId>& calls);

}  // namespace spillway
