#include <limits>

#include "plan/frontends/framework_settings.hpp"

namespace spillway {
namespace {

const std::vector<std::string>& offload_words() {
  static const std::vector<std::string> kWords = {
      "attn_norm", "qkv_linear", "core_attn",  "attn_proj", "mlp_norm",   "fc1",           "act",
      "fc2",       "router",     "expert_fc1", "moe_act",   "expert_fc2", "shared_experts"};
  return kWords;
}

const std::vector<std::string>& recompute_words() {
  static const std::vector<std::string> kWords = {
      "core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts"};
  return kWords;
}

/// Notes the keys that are given but have no effect.
void note_unused(const TomlReader& section, std::initializer_list<const char*> keys,
                 const std::string& reason, std::vector<std::string>& notes) {
  for (const char* key : keys) {
    if (section.has(key)) {
      notes.push_back("[megatron] " + std::string(key) + " has no effect here: " + reason);
    }
  }
}

void read_fine_grained(TomlReader& section, MegatronSettings& settings,
                       std::vector<std::string>& notes) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  settings.fine_grained_activation_offloading =
      section.flag("fine_grained_activation_offloading").value_or(false);
  settings.offload_modules =
      section.words("offload_modules", offload_words()).value_or(std::vector<std::string>{});
  if (const auto elements = section.whole("min_offloaded_tensor_size", 0, kMost)) {
    settings.min_offloaded_tensor_size = static_cast<std::uint64_t>(*elements);
  }
  settings.min_offloaded_bytes = section.size("min_offloaded_bytes");
  settings.activation_offload_fraction =
      section.number("activation_offload_fraction", 0, 1).value_or(1);
  settings.delta_offload_bytes_across_pp_ranks =
      section.size("delta_offload_bytes_across_pp_ranks").value_or(Bytes(0));
  if (const auto count =
          section.whole("fine_grained_offloading_max_inflight_offloads", 0, kMostLayers)) {
    settings.max_inflight_offloads = static_cast<int>(*count);
  }
  if (settings.fine_grained_activation_offloading && settings.offload_modules.empty()) {
    section.refuse("fine_grained_activation_offloading",
                   "has no meaning without offload_modules: nothing says what to offload");
  }
  if (!settings.fine_grained_activation_offloading) {
    note_unused(section,
                {"offload_modules", "min_offloaded_tensor_size", "min_offloaded_bytes",
                 "activation_offload_fraction", "delta_offload_bytes_across_pp_ranks",
                 "fine_grained_offloading_max_inflight_offloads"},
                "fine_grained_activation_offloading is not true", notes);
  }
}

void read_layer_offloading(TomlReader& section, MegatronSettings& settings,
                           std::vector<std::string>& notes) {
  settings.cpu_offloading = section.flag("cpu_offloading").value_or(false);
  settings.cpu_offloading_num_layers =
      static_cast<int>(section.whole("cpu_offloading_num_layers", 0, kMostLayers).value_or(0));
  if (!settings.cpu_offloading) {
    note_unused(section, {"cpu_offloading_num_layers"}, "cpu_offloading is not true", notes);
  } else if (settings.cpu_offloading_num_layers == 0) {
    notes.emplace_back("[megatron] cpu_offloading is for 0 layers: it offloads nothing");
  }
}

void check_full(const TomlReader& section, const MegatronSettings& settings,
                std::vector<std::string>& notes) {
  if (!section.has("recompute_method")) {
    section.refuse("recompute_granularity",
                   "= \"full\" needs recompute_method: \"uniform\" (groups of recompute_num_layers "
                   "layers) or \"block\" (the first recompute_num_layers layers)");
  }
  if (settings.recompute_num_layers == 0) {
    section.refuse("recompute_granularity", "= \"full\" needs recompute_num_layers of at least 1");
  }
  note_unused(section, {"recompute_modules"},
              "recompute_granularity = \"full\" recomputes everything in its layers", notes);
}

void check_not_full(const TomlReader& section, const MegatronSettings& settings,
                    std::vector<std::string>& notes) {
  const bool selective = settings.recompute_granularity == RecomputeGranularity::kSelective;
  if (settings.distribute_saved_activations) {
    section.refuse(
        "distribute_saved_activations",
        "has no meaning without recompute_granularity = \"full\": it slices the inputs of "
        "recomputed layers, and there are none");
  }
  if (selective && section.has("recompute_num_layers")) {
    section.refuse("recompute_num_layers",
                   "has no meaning with recompute_granularity = \"selective\", which is for all "
                   "layers");
  }
  if (selective) {
    note_unused(section, {"recompute_method"},
                "recompute_granularity = \"selective\" is for all layers", notes);
  } else {
    note_unused(section, {"recompute_method", "recompute_num_layers", "recompute_modules"},
                "recompute_granularity is not given", notes);
  }
}

void read_recompute(TomlReader& section, MegatronSettings& settings,
                    std::vector<std::string>& notes) {
  if (const auto word = section.word("recompute_granularity", {"full", "selective"})) {
    settings.recompute_granularity =
        *word == "full" ? RecomputeGranularity::kFull : RecomputeGranularity::kSelective;
  }
  if (section.word("recompute_method", {"uniform", "block"}) == "block") {
    settings.recompute_method = RecomputeMethod::kBlock;
  }
  settings.recompute_num_layers =
      static_cast<int>(section.whole("recompute_num_layers", 1, kMostLayers).value_or(0));
  settings.recompute_modules = section.words("recompute_modules", recompute_words())
                                   .value_or(std::vector<std::string>{"core_attn"});
  settings.distribute_saved_activations =
      section.flag("distribute_saved_activations").value_or(false);
  if (settings.recompute_granularity == RecomputeGranularity::kFull) {
    check_full(section, settings, notes);
  } else {
    check_not_full(section, settings, notes);
  }
}

}  // namespace

MegatronSettings read_megatron(TomlReader& section, std::vector<std::string>& notes) {
  MegatronSettings settings;
  settings.location = section.location();
  read_fine_grained(section, settings, notes);
  read_layer_offloading(section, settings, notes);
  read_recompute(section, settings, notes);
  section.finish();
  return settings;
}

}  // namespace spillway
