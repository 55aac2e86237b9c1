/// What a runner keeps from step to step.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "pipeline/stage_channel.hpp"
#include "spillway/pipeline/gradient_buckets.hpp"
#include "spillway/pipeline/pipeline_runner.hpp"

namespace spillway {

/// The shapes of what crosses the border behind a part of the model, by part and by what the sizes
/// of the micro-batch were.
using KnownShapes = std::map<std::pair<int, std::uint64_t>, TensorShapes>;

class PipelineRunner::State {
 public:
  State(PipelineLayer& of, PipelineGroups with, PipelineRunnerOptions chosen);

  PipelineLayer& model;
  PipelineGroups groups;
  PipelineRunnerOptions options;
  StageChannel activations;
  StageChannel gradients;
  std::vector<GradientBuckets> buckets;  // With several data ranks: of all but experts, of experts.
  KnownShapes shapes;
  std::int64_t step = 0;
};

}  // namespace spillway
