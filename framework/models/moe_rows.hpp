/// Rows put into another order, with gradients that are gathered too; internal.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace spillway {

/// Row i of the result is row index[i] of `x`, or zeros where `empty`, [rows of the result], is
/// true (undefined: nowhere). The inverse of it: row t of `x` is in the rows back[t * fan] to
/// back[t * fan + fan - 1] of the result, but for those that `lost` marks, [rows of x * fan].
/// In backward each row's gradient is the sum over its `fan` rows: no atomic operations.
[[nodiscard]] at::Tensor spread_rows(const at::Tensor& x, const at::Tensor& index,
                                     const at::Tensor& empty, const at::Tensor& back,
                                     const at::Tensor& lost, std::int64_t fan);

/// The other way: row j of the result is row back[j] of `x`, or zeros where `lost`; backward takes
/// the gradient of row i from row position[i] of the result's, or zeros where `empty`. `position`
/// names the one row of the result that row i of `x` went to.
[[nodiscard]] at::Tensor collect_rows(const at::Tensor& x, const at::Tensor& back,
                                      const at::Tensor& lost, const at::Tensor& position,
                                      const at::Tensor& empty);

}  // namespace spillway
