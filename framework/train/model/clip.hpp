/// Clipping by the norm of all gradients, wherever they live, with bits that do not depend on
/// where.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace spillway::app {

/// One rank's part in it. Nothing here waits for the device.
///
/// A step: `norms = clipper.squared_norms(gradients)`; then the sum of `norms` over all ranks that
/// share the model (one all-reduce); then `clip(gradients, norms, limit)`. Each element of `norms`
/// is non-zero on one rank only, so the sum is exact in any order, and the norm is then the same
/// sum over the same elements for every layout. Where tensor-parallel ranks share a gradient,
/// theirs are summed first, which gives the same bits on all of them; what all of them have is
/// given by one of them.
class GradientClipper {
 public:
  /// `positions`: of this rank's gradients among the `total` of the model, in an order that all
  /// ranks agree on, such as that of the sorted names.
  /// Errors: InvalidArgument for a position that is not below `total` or is given twice.
  GradientClipper(const std::vector<std::int64_t>& positions, std::int64_t total,
                  at::Device device);

  /// `total` values in double: at each position the squared norm of its gradient, elsewhere zero.
  /// Gradients that are not defined count as zero: a weight that two ranks hold is to be given by
  /// one of them only.
  /// Errors: InvalidArgument if there are not as many gradients as positions.
  [[nodiscard]] at::Tensor squared_norms(const std::vector<at::Tensor>& gradients) const;

 private:
  at::Tensor positions_;
  std::int64_t total_;
};

/// Multiplies the gradients by limit / norm if the norm is above the limit; a limit of 0 is none.
/// Returns the norm, before, as a number in double on the device. If it is not finite, neither are
/// the gradients afterwards.
at::Tensor clip(const std::vector<at::Tensor>& gradients, const at::Tensor& squared_norms,
                double limit);

}  // namespace spillway::app
