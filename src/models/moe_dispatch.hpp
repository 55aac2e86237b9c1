/// How the rows of a mixture of experts get to their experts and back; internal.
#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "spillway/models/moe.hpp"

namespace spillway {

/// One forward pass of one layer. Ordering: send(), run(), collect(); what is computed between them
/// overlaps with rows that travel.
class MoeDispatch {
 public:
  MoeDispatch() = default;
  MoeDispatch(const MoeDispatch&) = delete;
  MoeDispatch& operator=(const MoeDispatch&) = delete;
  virtual ~MoeDispatch() = default;

  /// Rows leave for the ranks of their experts. `x`: [tokens, hidden]. Scope: dispatch.
  virtual void send(const at::Tensor& x) = 0;
  /// Waits for the rows that came and runs the experts; what they made leaves. Scopes: dispatch,
  /// experts, combine.
  virtual void run(const ExpertWeights& experts) = 0;
  /// Waits for it: [tokens * k, hidden], by choice, zeros for what was dropped. Scope: combine.
  [[nodiscard]] virtual at::Tensor collect() = 0;
};

/// By shape.capacity_factor with fixed sizes, or as many rows as come; then the host reads how many.
[[nodiscard]] std::unique_ptr<MoeDispatch> make_dispatch(const MoeShape& shape,
                                                         const Routing& routing);

}  // namespace spillway
