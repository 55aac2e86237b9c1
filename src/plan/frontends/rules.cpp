#include "spillway/plan/rules.hpp"

#include <algorithm>

#include "plan/frontends/framework_settings.hpp"
#include "spillway/core/error.hpp"
#include "util/files.hpp"

namespace spillway {

Rules load_rules(const std::filesystem::path& path) {
  return parse_rules(read_file("rules", path), path.string());
}

ModelShape shape_of(const Profile& profile) {
  ModelShape shape{{}, profile.pipeline_rank};
  for (const ChunkProfile& chunk : profile.chunks) {
    if (chunk.layers == 0) continue;
    shape.chunks.push_back({chunk.first_layer, chunk.first_layer + chunk.layers - 1});
  }
  return shape;
}

ModelShape shape_of(int layers) {
  if (layers == 0) return {};
  return {{{0, layers - 1}}, 0};
}

void require_layers(const ModelShape& shape, const SourceLocation& location,
                    const std::string& key) {
  if (!shape.chunks.empty()) return;
  throw ConfigError("rules", to_string(location) + ": " + key +
                                 " counts layers, but no repeated layers were found in the model; "
                                 "name the list of layers when recording");
}

std::optional<LayerSet> layers_of_chunks(const ModelShape& shape, int first, int end) {
  LayerSet set;
  for (const LayerRange& chunk : shape.chunks) {
    const int stop = std::min(end, count_of(chunk));
    const LayerRange range{chunk.first + first, chunk.first + stop - 1};
    // Chunks may all count from 0.
    const bool known = std::find(set.ranges.begin(), set.ranges.end(), range) != set.ranges.end();
    if (first < stop && !known) set.ranges.push_back(range);
  }
  if (set.ranges.empty()) return std::nullopt;
  return set;
}

Rule named_rule(std::string name, const SourceLocation& location, ActionKind action) {
  Rule rule;
  rule.name = std::move(name);
  rule.location = location;
  rule.action.kind = action;
  return rule;
}

Rules translate(const Rules& rules, const ModelShape& shape) {
  Rules translated = rules;
  translated.settings.reset();
  if (rules.settings) {
    std::visit([&](const auto& settings) { add_rules(settings, shape, translated); },
               *rules.settings);
  }
  return translated;
}

bool may_shard(const Rules& rules) {
  const bool by_rule = std::any_of(rules.rules.begin(), rules.rules.end(),
                                   [](const Rule& rule) { return rule.action.shard; });
  if (rules.plan_shards || by_rule) return true;
  if (!rules.settings) return false;
  const auto* const megatron = std::get_if<MegatronSettings>(&*rules.settings);
  const auto* const paddle = std::get_if<PaddleSettings>(&*rules.settings);
  return (megatron != nullptr && megatron->distribute_saved_activations) ||
         (paddle != nullptr && paddle->recompute_partition);
}

}  // namespace spillway
