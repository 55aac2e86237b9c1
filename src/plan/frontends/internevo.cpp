#include <algorithm>
#include <array>

#include "plan/frontends/framework_settings.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/module_words.hpp"

namespace spillway {
namespace {

/// The section, with the `model` table in which InternEvo's own files have some of the words.
class Section {
 public:
  explicit Section(TomlReader& flat) : flat_(flat), model_(flat.table("model")) {}

  /// The table that has the key, or may have it.
  [[nodiscard]] TomlReader& with(std::string_view key) {
    if (!model_ || !model_->has(key)) return flat_;
    if (flat_.has(key)) {
      model_->refuse(key, "is given in [internevo] and in its model; give it once");
    }
    return *model_;
  }

  /// Refuses unknown keys; ignored keys of a configuration go to `notes`.
  void finish(std::vector<std::string>& notes) {
    std::string ignored;
    const auto look = [&ignored](TomlReader& table, const char* key, const std::string& name) {
      if (table.value(key) != nullptr) ignored += (ignored.empty() ? "" : ", ") + name;
    };
    look(flat_, "parallel", "parallel");
    for (const char* word : kWords) (void)flat_.value(word);
    if (model_) {
      for (const char* word : kWords) (void)model_->value(word);
      for (const char* key : kOtherModelKeys) look(*model_, key, std::string("model.") + key);
      model_->finish();
    }
    flat_.finish();
    if (!ignored.empty()) {
      notes.push_back("[internevo] keys that do not concern activations are ignored: " + ignored);
    }
  }

 private:
  static constexpr std::array kWords = {"cpu_offloading", "checkpoint", "selective_checkpoint",
                                        "selective_checkpoint_offload", "num_chunks"};
  /// What InternEvo's model has besides.
  static constexpr std::array kOtherModelKeys = {"apply_post_layer_norm",
                                                 "dtype",
                                                 "embed_grad_scale",
                                                 "embed_split_hidden",
                                                 "hidden_size",
                                                 "layer_norm_epsilon",
                                                 "max_position_embeddings",
                                                 "mlp_bias",
                                                 "mlp_ratio",
                                                 "moe_type",
                                                 "moe_use_residual",
                                                 "multiple_of",
                                                 "no_bias",
                                                 "norm_type",
                                                 "num_attention_heads",
                                                 "num_experts",
                                                 "num_kv_attention_heads",
                                                 "num_layers",
                                                 "o_bias",
                                                 "parallel_output",
                                                 "qk_interleaved",
                                                 "qkv_bias",
                                                 "rope_base",
                                                 "top_k",
                                                 "use_flash_attn",
                                                 "vocab_size"};

  TomlReader& flat_;
  std::optional<TomlReader> model_;
};

/// A fraction, or true and false for all and none.
double read_checkpoint(TomlReader& section) {
  const toml::node* node = section.value("checkpoint");
  if (node == nullptr) return 0;
  if (node->is_boolean()) return **node->as_boolean() ? 1 : 0;
  if (!node->is_number()) section.refuse_type("checkpoint", "true, false or a number from 0 to 1");
  return *section.number("checkpoint", 0, 1);
}

void read_offloading(TomlReader& section, InternEvoSettings& settings,
                     std::vector<std::string>& notes) {
  std::optional<TomlReader> table = section.table("cpu_offloading");
  if (!table) return;
  settings.cpu_offloading = table->flag("enable").value_or(false);
  settings.offloaded_layers =
      static_cast<int>(table->whole("num_layers", 0, kMostLayers).value_or(0));
  table->finish();
  if (settings.cpu_offloading && settings.offloaded_layers == 0) {
    notes.emplace_back("[internevo] cpu_offloading is enabled for 0 layers: nothing is offloaded");
  }
  if (!settings.cpu_offloading && settings.offloaded_layers > 0) {
    notes.emplace_back("[internevo] cpu_offloading has num_layers but is not enabled: it is off");
  }
}

/// The profile's chunks; for a model recorded whole, as many runs of layers as there are chunks, of
/// equal length as far as they go.
ModelShape split(const ModelShape& shape, const InternEvoSettings& settings) {
  if (shape.chunks.size() != 1 || settings.num_chunks == 1) return shape;
  const LayerRange whole = shape.chunks.front();
  const int layers = count_of(whole);
  if (settings.num_chunks > layers) {
    throw ConfigError("rules", to_string(settings.location) +
                                   ": num_chunks = " + std::to_string(settings.num_chunks) +
                                   " is impossible: the model has " + std::to_string(layers) +
                                   " layers");
  }
  ModelShape parts{{}, shape.pipeline_rank};
  for (int i = 0; i < settings.num_chunks; ++i) {
    const int begin = static_cast<int>(std::int64_t{layers} * i / settings.num_chunks);
    const int end = static_cast<int>(std::int64_t{layers} * (i + 1) / settings.num_chunks);
    parts.chunks.push_back({whole.first + begin, whole.first + end - 1});
  }
  return parts;
}

/// Layers that are neither offloaded nor kept: [num_layers, int(checkpoint * layers)) of each
/// chunk.
std::optional<LayerSet> recomputed_layers(const InternEvoSettings& settings,
                                          const ModelShape& shape, int offloaded) {
  LayerSet set;
  for (const LayerRange& chunk : shape.chunks) {
    const int end = static_cast<int>(settings.checkpoint * count_of(chunk));
    if (const auto layers = layers_of_chunks({{chunk}, 0}, offloaded, end)) {
      const LayerRange range = layers->ranges.front();
      const bool known = std::find(set.ranges.begin(), set.ranges.end(), range) != set.ranges.end();
      if (!known) set.ranges.push_back(range);
    }
  }
  if (set.ranges.empty()) return std::nullopt;
  return set;
}

void add_recompute(const InternEvoSettings& settings, const LayerSet& layers, Rules& rules) {
  if (settings.selective_checkpoint) {
    Rule outputs = named_rule(
        settings.selective_checkpoint_offload ? "internevo: selective_checkpoint_offload"
                                              : "internevo: selective_checkpoint",
        settings.location,
        settings.selective_checkpoint_offload ? ActionKind::kOffload : ActionKind::kKeep);
    outputs.producer = attention_operators();
    outputs.layers = layers;
    rules.rules.push_back(std::move(outputs));
  }
  Rule inputs = named_rule("internevo: checkpoint, inputs", settings.location, ActionKind::kKeep);
  inputs.layers = layers;
  inputs.group_inputs = 1;
  rules.rules.push_back(std::move(inputs));
  Rule rest = named_rule("internevo: checkpoint", settings.location, ActionKind::kRecompute);
  rest.layers = layers;
  rules.rules.push_back(std::move(rest));
}

}  // namespace

InternEvoSettings read_internevo(TomlReader& section, std::vector<std::string>& notes) {
  InternEvoSettings settings;
  settings.location = section.location();
  Section keys(section);
  const auto flag = [&keys](const char* key) { return keys.with(key).flag(key).value_or(false); };
  read_offloading(keys.with("cpu_offloading"), settings, notes);
  settings.checkpoint = read_checkpoint(keys.with("checkpoint"));
  settings.selective_checkpoint = flag("selective_checkpoint");
  settings.selective_checkpoint_offload = flag("selective_checkpoint_offload");
  settings.num_chunks =
      static_cast<int>(keys.with("num_chunks").whole("num_chunks", 1, kMostLayers).value_or(1));
  keys.finish(notes);
  if (settings.selective_checkpoint_offload && !settings.selective_checkpoint) {
    keys.with("selective_checkpoint_offload")
        .refuse("selective_checkpoint_offload",
                "has no meaning without selective_checkpoint = true: it says where the attention "
                "outputs go that selective_checkpoint saves from recomputation");
  }
  if (settings.selective_checkpoint && settings.checkpoint == 0) {
    keys.with("selective_checkpoint")
        .refuse("selective_checkpoint",
                "has no meaning without checkpoint: it says what recomputed layers keep, and no "
                "layer is recomputed");
  }
  return settings;
}

void add_rules(const InternEvoSettings& settings, const ModelShape& shape, Rules& rules) {
  const int offloaded = settings.cpu_offloading ? settings.offloaded_layers : 0;
  if (offloaded == 0 && settings.checkpoint == 0) {
    rules.notes.emplace_back("[internevo] nothing is switched on: everything is kept");
    return;
  }
  require_layers(shape, settings.location, "[internevo]");
  const ModelShape chunks = split(shape, settings);
  for (const LayerRange& chunk : chunks.chunks) {
    if (offloaded > count_of(chunk)) {
      throw ConfigError("rules", to_string(settings.location) + ": cpu_offloading.num_layers = " +
                                     std::to_string(offloaded) + " is impossible: a chunk has " +
                                     std::to_string(count_of(chunk)) + " layers");
    }
  }
  if (auto layers = layers_of_chunks(chunks, 0, offloaded)) {
    Rule rule = named_rule("internevo: cpu_offloading", settings.location, ActionKind::kOffload);
    rule.layers = std::move(layers);
    rules.rules.push_back(std::move(rule));
  }
  if (const auto layers = recomputed_layers(settings, chunks, offloaded)) {
    add_recompute(settings, *layers, rules);
  } else if (settings.checkpoint > 0) {
    rules.notes.push_back(
        "[internevo] checkpoint recomputes no layer: int(checkpoint * layers) is "
        "not more than the " +
        std::to_string(offloaded) + " offloaded layers of each chunk");
  }
}

}  // namespace spillway
