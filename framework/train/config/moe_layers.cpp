#include "train/config/moe_layers.hpp"

#include "spillway/plan/layer_choice.hpp"

namespace spillway::app {

std::int64_t moe_layers(const ModelConfig& model) {
  std::int64_t count = 0;
  const auto layers = static_cast<int>(model.layers);
  for (int i = 0; model.experts > 0 && i < layers; ++i) {
    if (is_chosen_layer(model.moe_layers, i, layers)) ++count;
  }
  return count;
}

}  // namespace spillway::app
