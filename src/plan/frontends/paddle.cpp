#include "plan/frontends/framework_settings.hpp"

namespace spillway {

PaddleSettings read_paddle(TomlReader& section, std::vector<std::string>& notes) {
  PaddleSettings settings;
  settings.location = section.location();
  settings.recompute_interval =
      static_cast<int>(section.whole("recompute_interval", 0, kMostLayers).value_or(0));
  settings.recompute_offload = section.flag("recompute_offload").value_or(false);
  settings.recompute_partition = section.flag("recompute_partition").value_or(false);
  section.finish();
  for (const char* key : {"recompute_offload", "recompute_partition"}) {
    const bool on = key == std::string_view("recompute_offload") ? settings.recompute_offload
                                                                 : settings.recompute_partition;
    if (on && settings.recompute_interval == 0) {
      section.refuse(key,
                     "has no meaning without recompute_interval: it says where the inputs of "
                     "recomputed layers go, and no layer is recomputed");
    }
  }
  if (settings.recompute_interval == 0) {
    notes.emplace_back("[paddle] recompute_interval is 0: nothing is recomputed");
  }
  return settings;
}

void add_rules(const PaddleSettings& settings, const ModelShape& shape, Rules& rules) {
  if (settings.recompute_interval == 0) return;
  require_layers(shape, settings.location, "recompute_interval");
  const std::optional<LayerSet> layers = layers_of_chunks(shape, 0, kAllLayers);
  Rule inputs = named_rule("paddle: recompute_interval, inputs", settings.location,
                           settings.recompute_offload ? ActionKind::kOffload : ActionKind::kKeep);
  inputs.layers = layers;
  inputs.group_inputs = settings.recompute_interval;
  inputs.action.shard = settings.recompute_partition;
  rules.rules.push_back(std::move(inputs));
  Rule rest = named_rule("paddle: recompute_interval", settings.location, ActionKind::kRecompute);
  rest.layers = layers;
  rules.rules.push_back(std::move(rest));
  rules.notes.emplace_back(
      "[paddle] recompute_interval counts the repeated layers of each chunk; Paddle also counts "
      "what stands before and after them in a stage");
}

}  // namespace spillway
