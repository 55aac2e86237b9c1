/// The layers of the model that a config describes.
#pragma once

#include <string>
#include <vector>

#include "spillway/parallel/layer_desc.hpp"
#include "training/config.hpp"

namespace spillway::app {

/// Errors: InvalidArgument for a shape that cannot be.
[[nodiscard]] std::vector<LayerDesc> model_layers(const ModelConfig& config, at::Device device);

/// The kind of the repeated layers, for segmentation.
[[nodiscard]] std::string repeated_kind(const ModelConfig& config);

}  // namespace spillway::app
