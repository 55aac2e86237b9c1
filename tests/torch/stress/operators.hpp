/// The operators of random programs. Each makes a value of the shape [rows, width] from two.
#pragma once

#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "features.hpp"
#include "machine.hpp"

namespace spillway::testing {

using Operator = at::Tensor (*)(Machine& machine, std::uint32_t draw, const at::Tensor& a,
                                const at::Tensor& b);

struct OperatorRow {
  std::string_view name;
  Feature feature;
  Operator apply;
};

[[nodiscard]] const std::vector<OperatorRow>& operators();

// By group; operators() has all of them.
[[nodiscard]] std::vector<OperatorRow> common_operators();
[[nodiscard]] std::vector<OperatorRow> layer_operators();
[[nodiscard]] std::vector<OperatorRow> writing_operators();
[[nodiscard]] std::vector<OperatorRow> graph_operators();
[[nodiscard]] std::vector<OperatorRow> stream_operators();  ///< On CUDA.

}  // namespace spillway::testing
