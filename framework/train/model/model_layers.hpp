/// The layers of the model that a config describes.
#pragma once

#include <string>
#include <vector>

#include "spillway/groups/group.hpp"
#include "spillway/pipeline/layer_desc.hpp"
#include "spillway/tensor/tensor_parallel.hpp"
#include "train/config/config.hpp"

namespace spillway::app {

/// `expert_ranks`: those that experts are spread over.
/// Errors: InvalidArgument for a shape that cannot be.
[[nodiscard]] std::vector<LayerDesc> model_layers(const ModelConfig& config, at::Device device,
                                                  const TensorParallel& tensor = {},
                                                  const Group& expert_ranks = Group());

/// PipelineLayerOptions::seg_method of a config's segmentation. Bounds there count the transformer
/// layers; what comes before and after them belongs to the first and the last part.
[[nodiscard]] std::string segmentation_method(const std::string& segmentation,
                                              const std::vector<LayerDesc>& layers);

}  // namespace spillway::app
