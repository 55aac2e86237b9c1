/// One rank of a pipeline by itself. What its neighbours would send is made up once and copied
/// where the rank would receive it; what it would send them is dropped when it would leave.
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

/// Steps without update, each the same as the one before.
/// Threads: one at a time.
class LoneStage {
 public:
  /// The layers of `shape` are cut evenly; the first part has the embedding, the last the head.
  /// Errors: as PipelineLayer and make_schedule().
  LoneStage(const LlamaShape& shape, const PipelineRank& rank);

  /// All passes of the rank's schedule, 1F1B, within a step of `session` if there is one, which is
  /// told the schedule. Waits for the device.
  app::MeasuredStep step(Session* session);

  /// How many gradients of a step with the session differ in a bit from those without: under
  /// deterministic algorithms, which are slower and so not timed.
  [[nodiscard]] int count_different(Session& session);

  [[nodiscard]] const PipelineLayer& model() const noexcept { return model_; }
  [[nodiscard]] at::Device device() const { return tokens_.device(); }
  [[nodiscard]] PassSchedule schedule() const { return passes_of(actions_); }

 private:
  using Key = std::pair<int, int>;  // Chunk, micro-batch.

  /// What a backward needs of its forward.
  struct Flight {
    at::Tensor input;  // Undefined on the first part.
    torch::autograd::Edge output;
  };

  void run(Step* step);
  void forward(const PipelineAction& action, Step* step);
  void backward(const PipelineAction& action, Step* step);

  PipelineLayer model_;
  std::vector<PipelineAction> actions_;
  at::Tensor tokens_;
  at::Tensor received_;  // What comes from a neighbour: an activation or a gradient.
  at::Tensor weight_;    // Of a micro-batch's loss.
  std::map<Key, Flight> flights_;
};

}  // namespace spillway::bench
