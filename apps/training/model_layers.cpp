#include "training/model_layers.hpp"

#include "spillway/models/gpt.hpp"
#include "spillway/models/llama.hpp"

namespace spillway::app {
namespace {

at::ScalarType dtype_of(const std::string& word) {
  if (word == "float64") return at::kDouble;
  return word == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

}  // namespace

std::vector<LayerDesc> model_layers(const ModelConfig& config, at::Device device) {
  if (config.kind == "gpt") {
    GptShape shape;
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
    return gpt_layers(shape);
  }
  LlamaShape shape;
  shape.layers = static_cast<int>(config.layers);
  shape.hidden = config.hidden;
  shape.heads = config.heads;
  shape.kv_heads = config.key_heads();
  shape.ffn = config.ffn;
  shape.tokens = config.tokens;
  shape.vocabulary = config.vocabulary;
  shape.dropout = config.dropout;
  shape.tied = config.tied;
  shape.device = device;
  shape.dtype = dtype_of(config.dtype);
  return llama_layers(shape);
}

std::string repeated_kind(const ModelConfig& config) {
  return config.kind == "gpt" ? "GptLayer" : "LlamaLayer";
}

}  // namespace spillway::app
