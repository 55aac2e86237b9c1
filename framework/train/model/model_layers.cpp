#include "train/model/model_layers.hpp"

#include <algorithm>

#include "spillway/models/gpt.hpp"
#include "spillway/models/llama.hpp"
#include "train/config/segmentation_text.hpp"

namespace spillway::app {
namespace {

at::ScalarType dtype_of(const std::string& word) {
  if (word == "float64") return at::kDouble;
  return word == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

MoeOverlap overlap_of(const std::string& word) {
  if (word == "halves") return MoeOverlap::kHalves;
  return word == "none" ? MoeOverlap::kNone : MoeOverlap::kShared;
}

MoeShape moe_of(const ModelConfig& config, const Group& ranks) {
  MoeShape moe;
  moe.experts = static_cast<int>(config.experts);
  moe.chosen = static_cast<int>(config.chosen_experts);
  moe.ffn = config.expert_ffn;
  moe.shared_ffn = config.shared_expert_ffn;
  moe.layers = config.moe_layers;
  moe.capacity_factor = config.capacity_factor;
  moe.overlap = overlap_of(config.moe_overlap);
  moe.router.softmax =
      config.router_softmax == "before" ? RouterSoftmax::kBefore : RouterSoftmax::kAfter;
  moe.router.aux_loss = config.aux_loss;
  moe.router.z_loss = config.z_loss;
  moe.group = ranks;
  return moe;
}

/// What both kinds of model have.
template <typename Shape>
Shape shape_of(const ModelConfig& config, at::Device device, const TensorParallel& tensor,
               const Group& expert_ranks) {
  Shape shape;
  shape.layers = static_cast<int>(config.layers);
  shape.hidden = config.hidden;
  shape.heads = config.heads;
  shape.ffn = config.ffn;
  shape.tokens = config.tokens;
  shape.vocabulary = config.vocabulary;
  shape.dropout = config.dropout;
  shape.tied = config.tied;
  shape.device = device;
  shape.dtype = dtype_of(config.dtype);
  shape.parallel = tensor;
  shape.moe = moe_of(config, expert_ranks);
  return shape;
}

}  // namespace

std::vector<LayerDesc> model_layers(const ModelConfig& config, at::Device device,
                                    const TensorParallel& tensor, const Group& expert_ranks) {
  if (config.kind == "gpt") {
    return gpt_layers(shape_of<GptShape>(config, device, tensor, expert_ranks));
  }
  auto shape = shape_of<LlamaShape>(config, device, tensor, expert_ranks);
  shape.kv_heads = config.key_heads();
  return llama_layers(shape);
}

std::string segmentation_method(const std::string& segmentation,
                                const std::vector<LayerDesc>& layers) {
  std::vector<int> bounds = parse_bounds(segmentation);
  if (bounds.empty()) return segmentation;
  const auto first = std::find_if(layers.begin(), layers.end(), [](const LayerDesc& layer) {
    return layer.name.starts_with("layers.");
  });
  for (int& bound : bounds) bound += static_cast<int>(first - layers.begin());
  bounds.front() = 0;
  bounds.back() = static_cast<int>(layers.size());
  std::string text;
  for (const int bound : bounds) text += (text.empty() ? "" : ",") + std::to_string(bound);
  return text;
}

}  // namespace spillway::app
