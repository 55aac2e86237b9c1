#include "training_shape.hpp"

#include "common/text_table.hpp"
#include "training/device_memory.hpp"

namespace spillway::app {
namespace {

at::ScalarType dtype_of(const std::string& word, const at::Device& device) {
  if (word == "float32") return at::kFloat;
  if (word == "float64") return at::kDouble;
  if (word == "bfloat16") return at::kBFloat16;
  return device.is_cuda() ? at::kBFloat16 : at::kFloat;
}

std::string word_of(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return "bfloat16";
  return dtype == at::kDouble ? "float64" : "float32";
}

}  // namespace

LlamaShape shape_of(const ModelOptions& options) {
  LlamaShape shape;
  shape.layers = options.layers;
  shape.hidden = options.hidden;
  shape.heads = options.heads;
  shape.kv_heads = options.kv_heads.value_or(options.heads);
  shape.ffn = options.ffn;
  shape.tokens = options.tokens;
  shape.vocabulary = options.vocabulary;
  shape.dropout = options.dropout;
  shape.seed = options.seed;
  check(shape);
  shape.device = torch_device(options.device);
  shape.dtype = dtype_of(options.dtype, shape.device);
  return shape;
}

std::string describe(const Llama& model) {
  const LlamaShape& shape = model.shape();
  std::int64_t parameters = 0;
  for (const at::Tensor& parameter : model.parameters()) parameters += parameter.numel();
  return std::to_string(shape.layers) + " layers of width " + std::to_string(shape.hidden) + ", " +
         fixed(static_cast<double>(parameters) / 1e6, 1) + " million parameters, " +
         word_of(shape.dtype) + " on " + shape.device.str() + ", " + std::to_string(shape.tokens) +
         " tokens";
}

SessionOptions session_options(const LlamaShape& shape) {
  SessionOptions options;
  options.device = shape.device;
  const auto values = static_cast<std::uint64_t>(shape.tokens * (8 * shape.hidden + 4 * shape.ffn));
  const Bytes window(values * c10::elementSize(shape.dtype) / 4);
  options.in_flight = window;
  options.ahead = window;
  return options;
}

}  // namespace spillway::app
