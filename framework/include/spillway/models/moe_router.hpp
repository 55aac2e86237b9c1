/// Which experts a token goes to.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spillway/tensor/tensor_parallel.hpp"

namespace spillway {

enum class RouterSoftmax {
  kAfter,   ///< Over the chosen experts: their weights sum to 1.
  kBefore,  ///< Over all experts: the chosen ones have what they have of it.
};

struct RouterShape {
  RouterSoftmax softmax = RouterSoftmax::kAfter;
  /// Coefficient of the loss that is smallest when experts are evenly loaded: experts x the sum
  /// over experts of (its share of the choices) x (its mean probability).
  double aux_loss = 0;
  /// Coefficient of the mean squared log-sum-exp of what the router gives, which keeps it small.
  double z_loss = 0;
};

struct Routing {
  at::Tensor chosen;   ///< [tokens, k], int64: by falling weight
  at::Tensor weights;  ///< [tokens, k], float; the losses are attached (with_loss())
  at::Tensor counts;   ///< [experts], int64: the choices of each
};

/// `x`: [..., hidden], between blocks; `weight`: [experts, hidden]. The losses are left out where
/// gradients are off. No host synchronisation.
///
/// With tensor ranks, what follows may give each of them a part of the gradient of the weights. If
/// sequences are split, `x` is [batch, length / ranks, hidden], and the routing is of all tokens of
/// the group; what one rank reports of the losses is then its part of a sum.
[[nodiscard]] Routing route(const at::Tensor& x, const at::Tensor& weight, std::int64_t chosen,
                            const RouterShape& shape, const TensorParallel& parallel = {});

/// The same of the first `tokens` and of the others, with their own counts. No host
/// synchronisation.
[[nodiscard]] std::vector<Routing> halves_of(const Routing& routing, std::int64_t tokens);

/// Where a row has which experts. `indices`: [tokens, k] of experts, each at most once a row, -1
/// for none; `probabilities`: of the same sizes, or undefined. Gives [tokens, experts] as bool, and
/// with the probabilities in those columns and zero elsewhere. Shapes follow from shapes alone, so
/// the host waits for nothing; autograd goes through the probabilities.
[[nodiscard]] std::pair<at::Tensor, at::Tensor> indices_to_multihot(const at::Tensor& indices,
                                                                    const at::Tensor& probabilities,
                                                                    std::int64_t experts);

}  // namespace spillway
