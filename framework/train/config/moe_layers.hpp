/// The layers of a config's model that have experts.
#pragma once

#include <cstdint>

#include "train/config/config.hpp"

namespace spillway::app {

/// How many; 0 without experts.
[[nodiscard]] std::int64_t moe_layers(const ModelConfig& model);

}  // namespace spillway::app
