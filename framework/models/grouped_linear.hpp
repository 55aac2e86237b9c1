/// One linear layer for each group of rows; internal.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace spillway {

/// counts[e] rows of `x`, [rows, in], times the transpose of weight[e], [experts, out, in], one
/// expert after the other: [rows, out]. Counts may be zero. One operator of the dispatcher,
/// spillway::grouped_linear, so that a session sees one buffer whatever the counts are; autograd
/// and autocast know it.
/// Errors: InvalidArgument if counts, rows and weights do not fit together.
[[nodiscard]] at::Tensor grouped_linear(const at::Tensor& x, const at::Tensor& weight,
                                        const std::vector<std::int64_t>& counts);

}  // namespace spillway
