#include "spillway/models/llama.hpp"

#include <algorithm>
#include <utility>

#include "models/llama_layer.hpp"
#include "models/parallel_check.hpp"
#include "spillway/core/error.hpp"
#include "spillway/models/token_embedding.hpp"
#include "spillway/torch/scope.hpp"

namespace spillway {
void check(const LlamaShape& shape) {
  const auto text = [](std::int64_t number) { return std::to_string(number); };
  for (const auto& [name, number] : {std::pair<const char*, std::int64_t>{"layers", shape.layers},
                                     {"hidden", shape.hidden},
                                     {"heads", shape.heads},
                                     {"kv_heads", shape.kv_heads},
                                     {"ffn", shape.ffn},
                                     {"tokens", shape.tokens},
                                     {"vocabulary", shape.vocabulary}}) {
    require(number > 0, std::string(name) + " = " + text(number) + ": at least 1 wanted");
  }
  require(shape.hidden % (2 * shape.heads) == 0,
          "hidden = " + text(shape.hidden) + " and heads = " + text(shape.heads) +
              ": each head must be of the same even width; give a multiple of " +
              text(2 * shape.heads) + " as hidden");
  require(shape.heads % shape.kv_heads == 0,
          "kv_heads = " + text(shape.kv_heads) + " must divide heads = " + text(shape.heads));
  check(shape.moe);
  require(shape.dropout >= 0 && shape.dropout < 1,
          "dropout = " + std::to_string(shape.dropout) + ": from 0 to less than 1 wanted");
  check_divisible(shape.parallel, {{"heads", shape.heads},
                                   {"kv_heads", shape.kv_heads},
                                   {"ffn", shape.ffn},
                                   {"vocabulary", shape.vocabulary}});
}

std::vector<LayerDesc> llama_layers(const LlamaShape& shape) {
  check(shape);
  const auto options = at::TensorOptions().device(shape.device).dtype(shape.dtype);
  const auto tables = std::make_shared<SharedRotaryTables>(shape);
  // A tied embedding is as wide as a head.
  const double scale = shape.tied ? 0.02 : 1;
  std::vector<LayerDesc> layers;
  layers.push_back(describe_layer<TokenEmbedding>("embedding", shape.vocabulary, shape.hidden,
                                                  scale, options, shape.parallel));
  if (shape.tied) layers.back().shared = "embedding";
  for (int i = 0; i < shape.layers; ++i) {
    layers.push_back(describe_layer<LlamaLayer>("layers." + std::to_string(i), shape, i, tables));
  }
  if (!shape.tied) {
    layers.push_back(describe_layer<LlamaHead>("head", shape));
    return layers;
  }
  layers.push_back(describe_layer<LlamaNorm>("norm", shape));
  const auto compare = [](const TokenEmbedding& embedding, const at::Tensor& x) {
    return embedding.logits(x);
  };
  layers.push_back(describe_shared_layer<TokenEmbedding>("embedding", "head", compare,
                                                         shape.vocabulary, shape.hidden, scale,
                                                         options, shape.parallel));
  return layers;
}

Llama::Llama(const LlamaShape& shape) : shape_(shape) {
  for (const LayerDesc& desc : llama_layers(shape)) {
    const auto same = std::find_if(layers_.begin(), layers_.end(), [&](const BuiltLayer& layer) {
      return !desc.shared.empty() && layer.desc.shared == desc.shared;
    });
    const int index = static_cast<int>(layers_.size());
    if (same != layers_.end()) {
      layers_.push_back({desc, index, same->module});
      continue;
    }
    layers_.push_back(build_layer(desc, index, shape.seed));
    for (const auto& parameter : layers_.back().module->named_parameters()) {
      names_.push_back(desc.name + "." + parameter.key());
      parameters_.push_back(parameter.value());
    }
    for (const at::Tensor& buffer : layers_.back().module->buffers()) buffers_.push_back(buffer);
  }
}

at::Tensor Llama::loss(const at::Tensor& tokens, const at::Tensor& targets) const {
  if (tokens.dim() != 2 || tokens.sizes() != targets.sizes() || tokens.size(1) > shape_.tokens) {
    throw InvalidArgument("model",
                          "tokens and targets of sizes [batch, length] wanted, length at most " +
                              std::to_string(shape_.tokens) + "; make both of one size");
  }
  at::Tensor x = embed(tokens);
  for (int i = 0; i < shape_.layers; ++i) x = run_layer(i, x);
  return predict(x, targets);
}

at::Tensor Llama::embed(const at::Tensor& tokens) const { return layers_[0].run({tokens})[0]; }

at::Tensor Llama::run_layer(int layer, const at::Tensor& x) const {
  return layers_[static_cast<std::size_t>(layer) + 1].run({x})[0];
}

at::Tensor Llama::predict(const at::Tensor& x, const at::Tensor& targets) const {
  Tensors logits{x};
  for (std::size_t i = static_cast<std::size_t>(shape_.layers) + 1; i < layers_.size(); ++i) {
    logits = layers_[i].run(logits);
  }
  const Scope scope("head");
  return vocabulary_cross_entropy(shape_.parallel, logits[0], targets);
}

}  // namespace spillway
