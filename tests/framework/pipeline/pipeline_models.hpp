/// Small models for pipelines, and what they learn from.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "spillway/pipeline/pipeline_runner.hpp"

namespace spillway::testing {

/// Which model, on which layout.
struct PipelineCase {
  std::string model = "llama";  ///< Or "gpt".
  int layers = 8;
  double dropout = 0;
  bool tied = false;
  int stages = 1;
  int stage = 0;
  int chunks = 1;
  std::string seg_method = "uniform";
  int recompute_interval = 0;
  TensorParallel tensor = {};
};

[[nodiscard]] PipelineLayer make_model(const PipelineCase& of);

/// `count` micro-batches of text; the last one is shorter if `uneven`. The same for the same
/// numbers.
[[nodiscard]] std::vector<MicroBatch> make_batches(std::int64_t step, int data_rank, int count,
                                                   bool uneven = false);

/// Weights by name.
using Weights = std::map<std::string, at::Tensor>;
[[nodiscard]] Weights weights_of(const PipelineLayer& model);

/// Weights less a share of their gradients.
void descend(const PipelineLayer& model);

/// The names of what differs in a bit, of what `found` has; and what `wanted` does not have.
[[nodiscard]] std::vector<std::string> different(const Weights& found, const Weights& wanted);

/// Trains `steps` steps in one process on one stage, without a session.
struct Trained {
  Weights weights;
  std::vector<double> losses;
};
struct TrainingCase {
  int steps = 3;
  int micro_batches = 4;
  bool uneven = false;
  std::optional<at::ScalarType> autocast = std::nullopt;
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
};
[[nodiscard]] Trained train_alone(PipelineCase model, const TrainingCase& training);

/// Trains on whatever layout the model and the groups are for.
[[nodiscard]] Trained train_in(PipelineLayer& model, PipelineGroups groups,
                               const TrainingCase& training, Session* session = nullptr);

}  // namespace spillway::testing
