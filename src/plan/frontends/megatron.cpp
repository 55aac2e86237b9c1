#include <algorithm>

#include "plan/frontends/framework_words.hpp"
#include "spillway/core/error.hpp"

namespace spillway {
namespace {

/// Megatron's default.
constexpr std::uint64_t kMinElements = 1'048'576;

[[noreturn]] void too_many(const MegatronWords& words, const char* key, int count, int layers) {
  throw ConfigError("rules", to_string(words.location) + ": " + key + " = " +
                                 std::to_string(count) + " is impossible: a chunk has " +
                                 std::to_string(layers) + " layers");
}

int shortest(const ModelShape& shape) {
  int layers = count_of(shape.chunks.front());
  for (const LayerRange& chunk : shape.chunks) layers = std::min(layers, count_of(chunk));
  return layers;
}

void add_layer_offload(const MegatronWords& words, const ModelShape& shape, Rules& rules) {
  if (!words.cpu_offloading || words.cpu_offloading_num_layers == 0) return;
  const int count = words.cpu_offloading_num_layers;
  require_layers(shape, words.location, "cpu_offloading_num_layers");
  if (count > shortest(shape)) too_many(words, "cpu_offloading_num_layers", count, shortest(shape));
  Rule rule = named_rule("megatron: cpu_offloading", words.location, ActionKind::kOffload);
  rule.layers = layers_of_chunks(shape, 0, count);
  rules.rules.push_back(std::move(rule));
}

void add_module_offload(const MegatronWords& words, const ModelShape& shape, Rules& rules) {
  if (!words.fine_grained_activation_offloading) return;
  Rule rule = named_rule("megatron: offload_modules", words.location, ActionKind::kOffload);
  rule.module = words.offload_modules;
  rule.min_size = words.min_offloaded_bytes;
  if (words.min_offloaded_tensor_size || !words.min_offloaded_bytes) {
    rule.min_elements = words.min_offloaded_tensor_size.value_or(kMinElements);
  }
  rule.fraction = words.activation_offload_fraction;
  const auto rank = static_cast<std::uint64_t>(shape.pipeline_rank);
  const std::uint64_t chunks = std::max<std::size_t>(shape.chunks.size(), 1);
  rule.skip = Bytes(words.delta_offload_bytes_across_pp_ranks.count() * rank / chunks);
  rules.rules.push_back(std::move(rule));
  if (words.max_inflight_offloads) {
    if (rules.limits.offload_window) {
      rules.notes.emplace_back(
          "[megatron] fine_grained_offloading_max_inflight_offloads says nothing here: [limits] "
          "offload_window is given");
    } else {
      rules.offload_window_modules = words.max_inflight_offloads;
    }
  }
  if (words.activation_offload_fraction < 1) {
    rules.notes.emplace_back(
        "[megatron] activation_offload_fraction is a share of the bytes here; Megatron counts "
        "modules");
  }
  rules.notes.emplace_back(
      "[megatron] Megatron never offloads the last module of each kind; here the windows of "
      "[limits] "
      "decide what is still on the device when backward wants it");
}

void add_full_recompute(const MegatronWords& words, const ModelShape& shape, Rules& rules) {
  const bool block = words.recompute_method == RecomputeMethod::kBlock;
  const int count = words.recompute_num_layers;
  require_layers(shape, words.location, "recompute_num_layers");
  if (count > shortest(shape)) too_many(words, "recompute_num_layers", count, shortest(shape));
  const std::optional<LayerSet> layers = layers_of_chunks(shape, 0, block ? count : kAllLayers);
  Rule inputs =
      named_rule("megatron: recompute_granularity full, inputs", words.location, ActionKind::kKeep);
  inputs.layers = layers;
  inputs.group_inputs = block ? 1 : count;
  inputs.action.shard = words.distribute_saved_activations;
  rules.rules.push_back(std::move(inputs));
  Rule rest =
      named_rule("megatron: recompute_granularity full", words.location, ActionKind::kRecompute);
  rest.layers = layers;
  rules.rules.push_back(std::move(rest));
}

/// Norms and activation functions: what they make is thrown away, wherever it was saved. The
/// others: what is made and saved inside them is thrown away, their inputs stay.
Rule selective_rule(const MegatronWords& words, const std::string& module) {
  Rule rule =
      named_rule("megatron: recompute_modules " + module, words.location, ActionKind::kRecompute);
  if (module == "layernorm") {
    rule.made_in_module = {"attn_norm", "mlp_norm"};
  } else {
    rule.made_in_module = {module};
    const bool discards_output = module == "moe_act" || module == "mla_up_proj";
    if (!discards_output) rule.module = {module};
  }
  return rule;
}

}  // namespace

void add_rules(const MegatronWords& words, const ModelShape& shape, Rules& rules) {
  const std::size_t before = rules.rules.size();
  add_layer_offload(words, shape, rules);
  switch (words.recompute_granularity) {
    case RecomputeGranularity::kNone:
      add_module_offload(words, shape, rules);
      break;
    case RecomputeGranularity::kSelective:
      // First: what is recomputed need not travel.
      for (const std::string& module : words.recompute_modules) {
        rules.rules.push_back(selective_rule(words, module));
      }
      add_module_offload(words, shape, rules);
      break;
    case RecomputeGranularity::kFull:
      // Last: what was offloaded by name need not be recomputed with its layer.
      add_module_offload(words, shape, rules);
      add_full_recompute(words, shape, rules);
      break;
  }
  if (rules.rules.size() == before) {
    rules.notes.emplace_back("[megatron] nothing is switched on: everything is kept");
  }
}

}  // namespace spillway
