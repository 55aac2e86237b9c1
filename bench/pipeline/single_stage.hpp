/// One rank of a pipeline without its neighbours. Messages to receive are emulated: a random
/// tensor, made once and copied where the rank would receive one. Messages to send are dropped.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include "spillway/models/llama.hpp"
#include "spillway/pipeline/pipeline_layer.hpp"
#include "spillway/schedule/schedule.hpp"
#include "spillway/torch/session.hpp"
#include "train/run/measured_model.hpp"

namespace spillway::bench {

/// Steps without optimizer updates, so that all are the same.
/// Threads: one at a time.
class SingleStage {
 public:
  /// The layers of `shape` are divided evenly; the first part has the embedding, the last the head.
  /// Errors: as PipelineLayer and make_schedule().
  SingleStage(const LlamaShape& shape, const PipelineRank& rank);

  /// All passes of the rank's 1F1B schedule, within a step of `session` (with that schedule) if it
  /// is not null. Waits for the device.
  app::MeasuredStep step(Session* session);

  /// How many gradients of a step with the session differ in a bit from those without. Uses
  /// deterministic algorithms, which are slower and therefore not timed.
  [[nodiscard]] int count_different(Session& session);

  [[nodiscard]] const PipelineLayer& model() const noexcept { return model_; }
  [[nodiscard]] at::Device device() const { return tokens_.device(); }
  [[nodiscard]] PassSchedule schedule() const { return passes_of(actions_); }

 private:
  using Key = std::pair<int, int>;  // Chunk, micro-batch.

  /// What backward of a pass needs from its forward.
  struct PendingPass {
    at::Tensor input;  // Undefined on the first part.
    torch::autograd::Edge output;
  };

  void run(Step* step);
  void forward(const PipelineAction& action, Step* step);
  void backward(const PipelineAction& action, Step* step);

  PipelineLayer model_;
  std::vector<PipelineAction> actions_;
  at::Tensor tokens_;
  at::Tensor received_;  // Emulated message of a neighbour: an activation or a gradient.
  at::Tensor weight_;    // Of a micro-batch's loss.
  std::map<Key, PendingPass> pending_;
};

}  // namespace spillway::bench
