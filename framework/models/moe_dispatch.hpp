/// How the rows of a mixture of experts get to their experts and back; internal.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spillway/models/moe.hpp"

namespace spillway {

/// One forward pass of one layer, or of some of its tokens. Ordering: send(), run(), collect();
/// what is computed between them overlaps with rows that travel.
class MoeDispatch {
 public:
  MoeDispatch() = default;
  MoeDispatch(const MoeDispatch&) = delete;
  MoeDispatch& operator=(const MoeDispatch&) = delete;
  virtual ~MoeDispatch() = default;

  /// Rows leave for the ranks of their experts. `x`: [tokens, hidden]. Scope: dispatch.
  virtual void send(const at::Tensor& x) = 0;
  /// Waits for the rows that came, runs the experts and sends the results. Scopes: dispatch,
  /// experts, combine.
  virtual void run(const ExpertWeights& experts) = 0;
  /// Waits for it: [tokens * k, hidden], by choice, zeros for what was dropped. Scope: combine.
  [[nodiscard]] virtual at::Tensor collect() = 0;
};

/// One for each part of a layer's tokens: by shape.capacity_factor with fixed sizes, or as many
/// rows as come; then the host reads once how many, for all parts. Scope: dispatch.
/// Lifetime: `shape` and `parts` outlive them.
[[nodiscard]] std::vector<std::unique_ptr<MoeDispatch>> make_dispatches(
    const MoeShape& shape, const std::vector<Routing>& parts);

}  // namespace spillway
