/// One rank of a pipeline by itself: a small model for each of its chunks, run in the order of the
/// rank's schedule. Messages of its neighbours are synthetic and repeatable.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "spillway/schedule/schedule.hpp"
#include "spillway/torch/session.hpp"

namespace spillway::testing {

struct StageOptions {
  PipelineRank rank;
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  int layers = 2;  ///< Of each chunk.
  std::int64_t hidden = 32;
  std::int64_t tokens = 32;
  double dropout = 0.1;
};

class PipelineStage {
 public:
  explicit PipelineStage(const StageOptions& options);

  /// Passes and messages of this rank, with another number of micro-batches if one is given.
  [[nodiscard]] std::vector<PipelineAction> actions(int micro_batches = 0) const;

  /// Runs them; `step` may be null. `seed`: of the synthetic messages.
  /// Returns the losses and the gradients of inputs; nothing if `keep` is false.
  std::vector<at::Tensor> run(Step* step, const std::vector<PipelineAction>& actions, int seed,
                              bool keep = true);

  [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return parameters_; }
  [[nodiscard]] std::vector<at::Tensor> buffers() const { return {}; }
  [[nodiscard]] std::vector<at::Tensor> gradients() const;
  void zero_gradients();

 private:
  struct Layer {
    at::Tensor norm, up, down;
  };
  struct OpenPass {
    at::Tensor input;
    at::Tensor output;  ///< Of the last part: the loss.
  };

  [[nodiscard]] at::Tensor weight(std::vector<std::int64_t> sizes);
  [[nodiscard]] int part(int chunk) const;
  [[nodiscard]] bool is_last(int chunk) const;
  [[nodiscard]] at::Tensor synthetic(int what, int chunk, int micro_batch, int seed) const;
  void forward(const PipelineAction& action, int seed);
  void backward(const PipelineAction& action, int seed, std::vector<at::Tensor>* values);

  StageOptions options_;
  std::vector<std::vector<Layer>> chunks_;
  std::vector<at::Tensor> parameters_;
  std::map<std::pair<int, int>, OpenPass> open_passes_;
};

}  // namespace spillway::testing
