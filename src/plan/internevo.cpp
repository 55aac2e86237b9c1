#include <algorithm>

#include "plan/framework_words.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/module_words.hpp"

namespace spillway {
namespace {

constexpr int kMostLayers = 1'000'000;

/// A fraction, or true and false for all and none.
double read_checkpoint(TomlReader& section) {
  const toml::node* node = section.value("checkpoint");
  if (node == nullptr) return 0;
  if (node->is_boolean()) return **node->as_boolean() ? 1 : 0;
  if (!node->is_number()) section.refuse_type("checkpoint", "true, false or a number from 0 to 1");
  return *section.number("checkpoint", 0, 1);
}

void read_offloading(TomlReader& section, InternEvoWords& words, std::vector<std::string>& notes) {
  std::optional<TomlReader> table = section.table("cpu_offloading");
  if (!table) return;
  words.cpu_offloading = table->flag("enable").value_or(false);
  words.offloaded_layers = static_cast<int>(table->whole("num_layers", 0, kMostLayers).value_or(0));
  table->finish();
  if (words.cpu_offloading && words.offloaded_layers == 0) {
    notes.emplace_back("[internevo] cpu_offloading is enabled for 0 layers: nothing is offloaded");
  }
  if (!words.cpu_offloading && words.offloaded_layers > 0) {
    notes.emplace_back("[internevo] cpu_offloading has num_layers but is not enabled: it is off");
  }
}

/// The profile's chunks; for a model recorded whole, as many runs of layers as there are chunks, of
/// equal length as far as they go.
ModelShape cut(const ModelShape& shape, const InternEvoWords& words) {
  if (shape.chunks.size() != 1 || words.num_chunks == 1) return shape;
  const LayerRange whole = shape.chunks.front();
  const int layers = count_of(whole);
  if (words.num_chunks > layers) {
    throw ConfigError(
        "rules", to_string(words.place) + ": num_chunks = " + std::to_string(words.num_chunks) +
                     " is impossible: the model has " + std::to_string(layers) + " layers");
  }
  ModelShape cut{{}, shape.pipeline_rank};
  for (int i = 0; i < words.num_chunks; ++i) {
    const int begin = static_cast<int>(std::int64_t{layers} * i / words.num_chunks);
    const int end = static_cast<int>(std::int64_t{layers} * (i + 1) / words.num_chunks);
    cut.chunks.push_back({whole.first + begin, whole.first + end - 1});
  }
  return cut;
}

/// Layers that are neither offloaded nor kept: [num_layers, int(checkpoint * layers)) of each
/// chunk.
std::optional<LayerSet> recomputed_layers(const InternEvoWords& words, const ModelShape& shape,
                                          int offloaded) {
  LayerSet set;
  for (const LayerRange& chunk : shape.chunks) {
    const int end = static_cast<int>(words.checkpoint * count_of(chunk));
    if (const auto layers = layers_of_chunks({{chunk}, 0}, offloaded, end)) {
      const LayerRange range = layers->ranges.front();
      const bool known = std::find(set.ranges.begin(), set.ranges.end(), range) != set.ranges.end();
      if (!known) set.ranges.push_back(range);
    }
  }
  if (set.ranges.empty()) return std::nullopt;
  return set;
}

void add_recompute(const InternEvoWords& words, const LayerSet& layers, Rules& rules) {
  if (words.selective_checkpoint) {
    Rule outputs = named_rule(
        words.selective_checkpoint_offload ? "internevo: selective_checkpoint_offload"
                                           : "internevo: selective_checkpoint",
        words.place, words.selective_checkpoint_offload ? ActionKind::kOffload : ActionKind::kKeep);
    outputs.producer = attention_operators();
    outputs.layers = layers;
    rules.rules.push_back(std::move(outputs));
  }
  Rule inputs = named_rule("internevo: checkpoint, inputs", words.place, ActionKind::kKeep);
  inputs.layers = layers;
  inputs.group_inputs = 1;
  rules.rules.push_back(std::move(inputs));
  Rule rest = named_rule("internevo: checkpoint", words.place, ActionKind::kRecompute);
  rest.layers = layers;
  rules.rules.push_back(std::move(rest));
}

}  // namespace

InternEvoWords read_internevo(TomlReader& section, std::vector<std::string>& notes) {
  InternEvoWords words;
  words.place = section.place();
  read_offloading(section, words, notes);
  words.checkpoint = read_checkpoint(section);
  words.selective_checkpoint = section.flag("selective_checkpoint").value_or(false);
  words.selective_checkpoint_offload = section.flag("selective_checkpoint_offload").value_or(false);
  words.num_chunks = static_cast<int>(section.whole("num_chunks", 1, kMostLayers).value_or(1));
  section.finish();
  if (words.selective_checkpoint_offload && !words.selective_checkpoint) {
    section.refuse(
        "selective_checkpoint_offload",
        "has no meaning without selective_checkpoint = true: it says where the attention "
        "outputs go that selective_checkpoint saves from recomputation");
  }
  if (words.selective_checkpoint && words.checkpoint == 0) {
    section.refuse("selective_checkpoint",
                   "has no meaning without checkpoint: it says what recomputed layers keep, and no "
                   "layer is recomputed");
  }
  return words;
}

void add_rules(const InternEvoWords& words, const ModelShape& shape, Rules& rules) {
  const int offloaded = words.cpu_offloading ? words.offloaded_layers : 0;
  if (offloaded == 0 && words.checkpoint == 0) {
    rules.notes.emplace_back("[internevo] nothing is switched on: everything is kept");
    return;
  }
  require_layers(shape, words.place, "[internevo]");
  const ModelShape chunks = cut(shape, words);
  for (const LayerRange& chunk : chunks.chunks) {
    if (offloaded > count_of(chunk)) {
      throw ConfigError("rules", to_string(words.place) + ": cpu_offloading.num_layers = " +
                                     std::to_string(offloaded) + " is impossible: a chunk has " +
                                     std::to_string(count_of(chunk)) + " layers");
    }
  }
  if (auto layers = layers_of_chunks(chunks, 0, offloaded)) {
    Rule rule = named_rule("internevo: cpu_offloading", words.place, ActionKind::kOffload);
    rule.layers = std::move(layers);
    rules.rules.push_back(std::move(rule));
  }
  if (const auto layers = recomputed_layers(words, chunks, offloaded)) {
    add_recompute(words, *layers, rules);
  } else if (words.checkpoint > 0) {
    rules.notes.push_back(
        "[internevo] checkpoint recomputes no layer: int(checkpoint * layers) is "
        "not more than the " +
        std::to_string(offloaded) + " offloaded layers of each chunk");
  }
}

}  // namespace spillway
