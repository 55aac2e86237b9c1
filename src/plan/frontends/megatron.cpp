#include <algorithm>

#include "plan/frontends/framework_settings.hpp"
#include "spillway/core/error.hpp"

namespace spillway {
namespace {

/// Megatron's default.
constexpr std::uint64_t kMinElements = 1'048'576;

[[noreturn]] void too_many(const MegatronSettings& settings, const char* key, int count,
                           int layers) {
  throw ConfigError("rules", to_string(settings.location) + ": " + key + " = " +
                                 std::to_string(count) + " is impossible: a chunk has " +
                                 std::to_string(layers) + " layers");
}

int shortest(const ModelShape& shape) {
  int layers = count_of(shape.chunks.front());
  for (const LayerRange& chunk : shape.chunks) layers = std::min(layers, count_of(chunk));
  return layers;
}

void add_layer_offload(const MegatronSettings& settings, const ModelShape& shape, Rules& rules) {
  if (!settings.cpu_offloading || settings.cpu_offloading_num_layers == 0) return;
  const int count = settings.cpu_offloading_num_layers;
  require_layers(shape, settings.location, "cpu_offloading_num_layers");
  if (count > shortest(shape))
    too_many(settings, "cpu_offloading_num_layers", count, shortest(shape));
  Rule rule = named_rule("megatron: cpu_offloading", settings.location, ActionKind::kOffload);
  rule.layers = layers_of_chunks(shape, 0, count);
  rules.rules.push_back(std::move(rule));
}

void add_module_offload(const MegatronSettings& settings, const ModelShape& shape, Rules& rules) {
  if (!settings.fine_grained_activation_offloading) return;
  Rule rule = named_rule("megatron: offload_modules", settings.location, ActionKind::kOffload);
  rule.module = settings.offload_modules;
  rule.min_size = settings.min_offloaded_bytes;
  if (settings.min_offloaded_tensor_size || !settings.min_offloaded_bytes) {
    rule.min_elements = settings.min_offloaded_tensor_size.value_or(kMinElements);
  }
  rule.fraction = settings.activation_offload_fraction;
  const auto rank = static_cast<std::uint64_t>(shape.pipeline_rank);
  const std::uint64_t chunks = std::max<std::size_t>(shape.chunks.size(), 1);
  rule.skip = Bytes(settings.delta_offload_bytes_across_pp_ranks.count() * rank / chunks);
  rules.rules.push_back(std::move(rule));
  if (settings.max_inflight_offloads) {
    if (rules.limits.offload_window) {
      rules.notes.emplace_back(
          "[megatron] fine_grained_offloading_max_inflight_offloads has no effect here: [limits] "
          "offload_window is given");
    } else {
      rules.offload_window_modules = settings.max_inflight_offloads;
    }
  }
  if (settings.activation_offload_fraction < 1) {
    rules.notes.emplace_back(
        "[megatron] activation_offload_fraction is a share of the bytes here; Megatron counts "
        "modules");
  }
  rules.notes.emplace_back(
      "[megatron] Megatron never offloads the last module of each kind; here the windows of "
      "[limits] decide what is still on the device when backward needs it");
}

void add_full_recompute(const MegatronSettings& settings, const ModelShape& shape, Rules& rules) {
  const bool block = settings.recompute_method == RecomputeMethod::kBlock;
  const int count = settings.recompute_num_layers;
  require_layers(shape, settings.location, "recompute_num_layers");
  if (count > shortest(shape)) too_many(settings, "recompute_num_layers", count, shortest(shape));
  const std::optional<LayerSet> layers = layers_of_chunks(shape, 0, block ? count : kAllLayers);
  Rule inputs = named_rule("megatron: recompute_granularity full, inputs", settings.location,
                           ActionKind::kKeep);
  inputs.layers = layers;
  inputs.group_inputs = block ? 1 : count;
  inputs.action.shard = settings.distribute_saved_activations;
  rules.rules.push_back(std::move(inputs));
  Rule rest =
      named_rule("megatron: recompute_granularity full", settings.location, ActionKind::kRecompute);
  rest.layers = layers;
  rules.rules.push_back(std::move(rest));
}

/// Norms and activation functions: their outputs are recomputed, wherever they were saved. The
/// others: what is made and saved inside them is recomputed, their inputs are kept.
Rule selective_rule(const MegatronSettings& settings, const std::string& module) {
  Rule rule = named_rule("megatron: recompute_modules " + module, settings.location,
                         ActionKind::kRecompute);
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

void add_rules(const MegatronSettings& settings, const ModelShape& shape, Rules& rules) {
  const std::size_t before = rules.rules.size();
  add_layer_offload(settings, shape, rules);
  switch (settings.recompute_granularity) {
    case RecomputeGranularity::kNone:
      add_module_offload(settings, shape, rules);
      break;
    case RecomputeGranularity::kSelective:
      // First: what is recomputed need not be offloaded.
      for (const std::string& module : settings.recompute_modules) {
        rules.rules.push_back(selective_rule(settings, module));
      }
      add_module_offload(settings, shape, rules);
      break;
    case RecomputeGranularity::kFull:
      // Last: what was offloaded by name need not be recomputed with its layer.
      add_module_offload(settings, shape, rules);
      add_full_recompute(settings, shape, rules);
      break;
  }
  if (rules.rules.size() == before) {
    rules.notes.emplace_back("[megatron] nothing is switched on: everything is kept");
  }
}

}  // namespace spillway
