/// The layers of a model that one stage of a pipeline holds.
///
///   PipelineLayer model(llama_layers(shape), {.num_stages = 4,
///                                             .stage = topology.coordinate(rank, Axis::kPipeline),
///                                             .loss_fn = language_model_loss,
///                                             .seg_method = "layer:LlamaLayer"});
///
/// The list of layers is split into num_stages * chunks parts; a stage builds the parts chunk *
/// num_stages + stage and nothing else. PipelineRunner runs them in the order of a schedule.
///
/// Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spillway/comm/expert_slice.hpp"
#include "spillway/comm/shard.hpp"
#include "spillway/comm/topology.hpp"
#include "spillway/pipeline/layer_desc.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"
#include "spillway/tensor/tensor_parallel.hpp"

namespace spillway {

/// From what the last layer gives and the target to one number.
using LossFunction = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;

struct PipelineLayerOptions {
  int num_stages = 1;
  int stage = 0;
  int chunks = 1;  ///< Parts of the model on each stage (virtual stages).
  LossFunction loss_fn;
  /// "uniform", "layer:Kind", "0,4,8" (bounds), or "memory" and "time": balanced by `profile`.
  std::string seg_method = "uniform";
  /// Of the whole model in one process, for "memory" and "time".
  std::shared_ptr<const Profile> profile;
  /// Groups of so many layers are recomputed from their inputs; 0: none. See rules().
  int recompute_interval = 0;
  /// The inputs of those layers are offloaded to the host.
  bool recompute_offload = false;
  /// The inputs of those layers are sharded over the ranks of the tensor-parallel group.
  bool recompute_partition = false;
  std::uint64_t seed = 0;  ///< Of weights, and of what is random in the layers.
  at::Device device = at::kCPU;
  /// What the layers were made with: PipelineRunner sums over it what its ranks have parts of.
  TensorParallel tensor = {};
};

/// The same, with stages and stage from the topology.
[[nodiscard]] PipelineLayerOptions with_topology(PipelineLayerOptions options,
                                                 const Topology& topology, int rank);

/// A parameter of this stage.
struct StageParameter {
  std::string name;   ///< In the whole model: "layers.3.attention.qkv".
  int layer = 0;      ///< Index of its layer in the whole model.
  int position = 0;   ///< In the layer. (layer, position) is the same order on every layout.
  int chunk = 0;      ///< Of this stage.
  bool copy = false;  ///< Another stage, or an earlier layer there, has the original.
  at::Tensor value;
  /// How it is sharded over the tensor-parallel group; empty: `value` is the whole.
  std::optional<Shard> shard = std::nullopt;
  ExpertSlice experts = {};  ///< Those whose weights it has, if any.
};

/// Weights that layers of several stages share.
struct SharedWeights {
  std::string key;
  std::vector<int> stages;  ///< In rising order, this one among them; at least two.
  std::vector<at::Tensor> parameters;
};

class PipelineLayer {
 public:
  /// Builds this stage's layers.
  /// Errors: InvalidArgument for numbers that cannot be, a stage that is not there, fewer layers
  /// than parts, layers of one name, a seg_method that is wrong or does not fit, and for layers
  /// of different kinds that are to share weights.
  PipelineLayer(std::vector<LayerDesc> layers, PipelineLayerOptions options);

  /// Runs the layers of a chunk. Before each the default generators are seeded by `pass_seed` and
  /// the layer's index in the model, so that what is random in it does not depend on the layout.
  [[nodiscard]] Tensors forward(int chunk, const Tensors& inputs, std::uint64_t pass_seed) const;
  [[nodiscard]] at::Tensor loss(const at::Tensor& output, const at::Tensor& target) const;

  /// In the order of the layers; a weight that several layers of this stage share once.
  [[nodiscard]] const std::vector<StageParameter>& stage_parameters() const noexcept {
    return parameters_;
  }
  /// For Session::register_model() and optimizers.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;
  [[nodiscard]] std::vector<at::Tensor> buffers() const;
  /// Those of this stage that others have too.
  [[nodiscard]] const std::vector<SharedWeights>& shared_weights() const noexcept {
    return shared_;
  }
  /// All keys of the model, with the stages that have them: the same on every stage.
  [[nodiscard]] const std::vector<SharedWeights>& all_shared_weights() const noexcept {
    return all_shared_;
  }

  /// The layers' training mode: dropout and the like.
  void train(bool on = true);

  /// What recompute_interval, recompute_offload and recompute_partition ask of a session.
  [[nodiscard]] Rules rules() const;

  [[nodiscard]] const PipelineLayerOptions& options() const noexcept { return options_; }
  /// Of all parts of the model.
  [[nodiscard]] const std::vector<int>& bounds() const noexcept { return bounds_; }
  [[nodiscard]] int layers() const noexcept { return bounds_.back(); }
  /// The part of the model that a chunk is.
  [[nodiscard]] int part(int chunk) const noexcept {
    return chunk * options_.num_stages + options_.stage;
  }
  [[nodiscard]] bool is_first(int chunk) const noexcept { return part(chunk) == 0; }
  [[nodiscard]] bool is_last(int chunk) const noexcept {
    return part(chunk) == options_.num_stages * options_.chunks - 1;
  }
  /// The layers of a chunk, "layers.4 .. layers.7", for people.
  [[nodiscard]] std::string describe(int chunk) const;

 private:
  void build(const std::vector<LayerDesc>& layers);
  void share(const std::vector<LayerDesc>& layers);

  PipelineLayerOptions options_;
  std::vector<int> bounds_;
  std::vector<std::vector<BuiltLayer>> chunks_;
  std::vector<StageParameter> parameters_;
  std::vector<SharedWeights> shared_;
  std::vector<SharedWeights> all_shared_;
};

}  // namespace spillway
