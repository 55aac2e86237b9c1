#include "spillway/models/gpt.hpp"

#include <utility>

#include "models/gpt_layer.hpp"
#include "models/parallel_check.hpp"
#include "spillway/core/error.hpp"
#include "spillway/models/token_embedding.hpp"

namespace spillway {
void check(const GptShape& shape) {
  for (const auto& [name, number] : {std::pair<const char*, std::int64_t>{"layers", shape.layers},
                                     {"hidden", shape.hidden},
                                     {"heads", shape.heads},
                                     {"ffn", shape.ffn},
                                     {"tokens", shape.tokens},
                                     {"vocabulary", shape.vocabulary}}) {
    require(number > 0, std::string(name) + " = " + std::to_string(number) + ": at least 1 wanted");
  }
  require(shape.hidden % shape.heads == 0,
          "heads = " + std::to_string(shape.heads) +
              " must divide hidden = " + std::to_string(shape.hidden));
  check(shape.moe);
  require(shape.dropout >= 0 && shape.dropout < 1,
          "dropout = " + std::to_string(shape.dropout) + ": from 0 to less than 1 wanted");
  check_divisible(shape.parallel,
                  {{"heads", shape.heads}, {"ffn", shape.ffn}, {"vocabulary", shape.vocabulary}});
}

std::vector<LayerDesc> gpt_layers(const GptShape& shape) {
  check(shape);
  const auto options = at::TensorOptions().device(shape.device).dtype(shape.dtype);
  const std::string key = shape.tied ? "embedding" : "";
  std::vector<LayerDesc> layers;
  layers.push_back(describe_layer<TokenEmbedding>("embedding", shape.vocabulary, shape.hidden, 0.02,
                                                  options, shape.parallel));
  layers.back().shared = key;
  layers.push_back(describe_layer<GptPositions>("positions", shape));
  for (int i = 0; i < shape.layers; ++i) {
    layers.push_back(describe_layer<GptLayer>("layers." + std::to_string(i), shape, i));
  }
  layers.push_back(describe_layer<GptNorm>("norm", shape));
  const auto logits = [](const TokenEmbedding& embedding, const at::Tensor& x) {
    return embedding.logits(x);
  };
  layers.push_back(describe_shared_layer<TokenEmbedding>(
      key, "head", logits, shape.vocabulary, shape.hidden, 0.02, options, shape.parallel));
  return layers;
}

}  // namespace spillway
