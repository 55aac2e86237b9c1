/// A mixture of experts: an MLP of which every token uses only a few parts, which may lie on
/// different ranks.
///
///   MoeShape shape{.experts = 8, .chosen = 2, .ffn = 1024};
///   auto moe = std::make_shared<Moe>(shape, 1024, MlpShape{.hidden = 512});
///   at::Tensor added = moe->forward(normed);   // [..., hidden]
///
/// Scopes: router, dispatch, experts.{fc1,act,fc2}, combine, shared_experts.{fc1,act,fc2}.
/// docs/moe.md says how tokens travel and what it costs.
///
/// Bits: the same in every run: rows are put in order by a stable sort, and are gathered, never
///       added by atomic operations. They do not depend on the number of ranks the experts are
///       spread over, but for the order in which the gradients of several ranks' tokens are summed.
/// Tensor ranks: each has some columns of every expert, and the same rows come to all of them; what
///       they make is summed where it leaves the block. With sequence parallelism a rank routes its
///       own part of the tokens; the losses are of all of them nevertheless.
/// Host: with a capacity the host waits for nothing. Without one it reads, once for each call, how
///       many rows each expert gets of each rank. On a GPU only streams wait for rows that travel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "spillway/comm/expert_slice.hpp"
#include "spillway/groups/group.hpp"
#include "spillway/models/moe_router.hpp"
#include "spillway/tensor/tensor_modules.hpp"

namespace spillway {

class MoeDispatch;

/// What is computed while rows travel between ranks, forward and backward (docs/moe.md).
enum class MoeOverlap {
  kNone,    ///< Nothing.
  kShared,  ///< The expert that sees every token: the same bits as with nothing.
  /// Besides, the experts for the other half of the tokens. Halves have capacities of their own,
  /// and a weight's gradient is the sum of theirs, so bits differ from those of the other two.
  kHalves,
};

struct MoeShape {
  int experts = 0;              ///< Of each layer that has any; 0: none has.
  int chosen = 2;               ///< How many of them see a token.
  std::int64_t ffn = 0;         ///< Their width; 0: that of the dense MLP.
  std::int64_t shared_ffn = 0;  ///< Width of an MLP that sees every token besides; 0: none.
  /// Which layers have experts instead of a dense MLP: "every 2" (from the second one on), or as a
  /// LayerSet: "1,3,5", "1..-1".
  std::string layers = "every 2";
  /// How many rows an expert takes, times the number that would be even; those beyond are dropped.
  /// 0: as many as come.
  double capacity_factor = 0;
  MoeOverlap overlap = MoeOverlap::kShared;
  RouterShape router = {};
  /// The ranks that the experts of a layer are spread over, in equal parts.
  Group group = Group();
};

/// Errors: InvalidArgument for numbers that cannot be, or experts that cannot be spread evenly.
void check(const MoeShape& shape);

/// Whether the layer has experts; the model has `layers` of them.
/// Errors: InvalidArgument if shape.layers is not to be read.
[[nodiscard]] bool has_experts(const MoeShape& shape, int layer, int layers);

/// What an MLP is like: linear layers without biases, and between them SiLU times a gate, or GELU.
struct MlpShape {
  std::int64_t hidden = 0;
  bool gated = true;
  double scale = 0.02;         ///< Of the initial weights of the first layer.
  double output_scale = 0.02;  ///< Of those of the second layer.
  at::TensorOptions options = {};
  TensorParallel parallel = {};  ///< The ranks that share the widths of all experts.
};

/// The experts of one rank: fc1.gate and fc1.up, or fc1 alone, [experts, ffn, hidden], and fc2,
/// [experts, hidden, ffn], of which tensor ranks have parts of ffn. Weights at the start follow
/// from the seed of the default generator and the number of the expert, wherever it lies.
class ExpertWeights : public ShardedModule, public HoldsExperts {
 public:
  ExpertWeights(const MoeShape& moe, std::int64_t ffn, const MlpShape& mlp);

  [[nodiscard]] ExpertSlice experts() const override { return slice_; }

  /// As many rows as `counts` says for each expert, one expert after the other: [rows, hidden].
  [[nodiscard]] at::Tensor forward(const at::Tensor& x,
                                   const std::vector<std::int64_t>& counts) const;
  /// Equally many for each: [experts, rows, hidden].
  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

 private:
  ExpertSlice slice_;
  at::Tensor gate_, up_, fc2_;  // Without a gate, up_ is fc1.
};

/// A dense MLP, in two parts, so that rows can travel beside each. Tensor ranks have parts of ffn,
/// and what they make is to be summed.
class SharedExpert : public ShardedModule {
 public:
  SharedExpert(std::int64_t ffn, const MlpShape& mlp);

  /// To the activation's output. Scopes: shared_experts.{fc1,act}.
  [[nodiscard]] at::Tensor widen(const at::Tensor& x) const;
  /// From there. Scope: shared_experts.fc2.
  [[nodiscard]] at::Tensor narrow(const at::Tensor& wide) const;

 private:
  at::Tensor gate_, up_, fc2_;
};

/// Threads: one at a time. Ordering: all ranks of the group call it together.
class Moe : public torch::nn::Module {
 public:
  /// `ffn`: the width of experts where shape.ffn is 0.
  /// Errors: as check(), and InvalidArgument for widths that tensor ranks cannot share evenly.
  Moe(const MoeShape& shape, std::int64_t ffn, const MlpShape& mlp);

  /// What the chosen experts make of each token, by the router's weights, plus what the shared one
  /// makes of it. `x`: [..., hidden], as many tokens on every rank of the group; between blocks,
  /// as what is returned.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

 private:
  [[nodiscard]] at::Tensor one_by_one(const at::Tensor& rows,
                                      const std::vector<Routing>& routing) const;
  [[nodiscard]] at::Tensor overlapped(const at::Tensor& rows, std::vector<Routing> parts) const;
  /// What came back of each token, by the router's weights.
  [[nodiscard]] at::Tensor combine(MoeDispatch& dispatch, const Routing& routing) const;

  MoeShape shape_;
  TensorParallel parallel_;
  at::Tensor router_;
  std::shared_ptr<ExpertWeights> experts_;
  std::shared_ptr<SharedExpert> shared_;  // May be none.
};

}  // namespace spillway
