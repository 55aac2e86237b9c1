#include "plan/frontends/rules_reader.hpp"

#include "plan/frontends/framework_settings.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/module_words.hpp"
#include "spillway/plan/rules.hpp"

namespace spillway {
namespace {

const std::vector<std::string>& action_words() {
  static const std::vector<std::string> kWords = {"keep", "offload", "recompute"};
  return kWords;
}

std::vector<std::string> known_modules() {
  std::vector<std::string> words;
  for (const ModuleWord& each : module_words()) words.push_back(each.word);
  return words;
}

std::optional<LayerSet> read_layers(TomlReader& table) {
  const toml::node* node = table.value("layers");
  if (node == nullptr) return std::nullopt;
  if (node->is_integer()) {
    const int layer = static_cast<int>(*table.whole("layers", -1'000'000, 1'000'000));
    return LayerSet{{{layer, layer}}};
  }
  const std::string text = *table.text("layers");
  try {
    return parse_layers(text);
  } catch (const InvalidArgument& error) {
    const std::string what = error.what();
    table.refuse("layers", what.substr(error.operation().size() + 3));
  }
}

void read_conditions(TomlReader& table, Rule& rule) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::string> none;
  rule.scope = table.texts("scope").value_or(none);
  rule.saved_by = table.texts("saved_by").value_or(none);
  rule.module = table.words("module", known_modules()).value_or(none);
  rule.producer = table.texts("producer").value_or(none);
  rule.made_in = table.texts("made_in").value_or(none);
  rule.made_in_module = table.words("made_in_module", known_modules()).value_or(none);
  rule.layers = read_layers(table);
  if (const auto count = table.whole("group_inputs", 1, 1'000'000)) {
    rule.group_inputs = static_cast<int>(*count);
  }
  rule.min_size = table.size("min_size");
  rule.max_size = table.size("max_size");
  if (rule.min_size && rule.max_size && *rule.min_size > *rule.max_size) {
    table.refuse_value("max_size", "it is less than min_size, so nothing can match");
  }
  if (const auto count = table.whole("min_elements", 0, kMost)) {
    rule.min_elements = static_cast<std::uint64_t>(*count);
  }
}

void read_action(TomlReader& table, Rule& rule) {
  if (!table.has("action")) {
    throw ConfigError("rules", to_string(table.location()) +
                                   ": [[rule]] has no action; write action = \"keep\", \"offload\" "
                                   "or \"recompute\"");
  }
  table.accept_old_name("fallback", "second");
  rule.action.kind = *action_kind(*table.word("action", action_words()));
  if (const auto word = table.word("fallback", action_words())) rule.fallback = *action_kind(*word);
  if (rule.fallback == ActionKind::kRecompute) {
    table.refuse_value("fallback",
                       "when the action turns out to be impossible it is too late to record what "
                       "recomputing needs; write \"keep\" or \"offload\"");
  }
  if (table.has("fallback") && rule.fallback == rule.action.kind) {
    table.refuse_value("fallback",
                       "it is what to do when the action is not possible, so it must differ");
  }
  rule.action.shard = table.flag("shard").value_or(false);
  if (rule.action.shard && rule.action.kind == ActionKind::kRecompute) {
    table.refuse_value("shard", "a recomputed buffer is not stored, so there is nothing to shard");
  }
  if (table.word("tier", {"host", "file"}) == "file") {
    table.refuse_value("tier", "there is no file tier yet; write \"host\" or leave the key out");
  }
  if (table.has("tier") && rule.action.kind != ActionKind::kOffload) {
    table.refuse_value("tier", "only action = \"offload\" moves a buffer to a tier");
  }
}

Rule read_rule(TomlReader table) {
  Rule rule;
  rule.location = table.location();
  rule.name = table.text("name").value_or("");
  read_conditions(table, rule);
  read_action(table, rule);
  rule.skip = table.size("skip").value_or(Bytes(0));
  rule.fraction = table.number("fraction", 0, 1).value_or(1);
  table.finish();
  return rule;
}

void read_limits(TomlReader table, Rules& rules) {
  table.accept_old_name("offload_window", "in_flight");                  // old name
  table.accept_old_name("offload_window_modules", "in_flight_modules");  // old name
  table.accept_old_name("prefetch_window", "ahead");
  rules.limits.host = table.size("host");
  rules.limits.offload_window = table.size("offload_window");
  rules.limits.prefetch_window = table.size("prefetch_window");
  rules.limits.min_size = table.size("min_size");
  rules.limits.recompute_cache = table.size("recompute_cache");
  rules.limits.slowdown = table.number("slowdown", 0, 1);
  if (const auto count = table.whole("offload_window_modules", 0, 1'000'000)) {
    rules.offload_window_modules = static_cast<int>(*count);
  }
  rules.recompute_collectives = table.flag("recompute_collectives").value_or(false);
  rules.plan_shards = table.flag("shard").value_or(false);
  table.finish();
  if (rules.limits.offload_window && rules.offload_window_modules) {
    table.refuse("offload_window_modules",
                 "says the same as offload_window in other units; give one of them");
  }
  const bool windows =
      rules.limits.offload_window || rules.offload_window_modules || rules.limits.prefetch_window;
  if (rules.limits.slowdown && windows) {
    table.refuse("slowdown",
                 "applies to windows that the session chooses, but offload_window, "
                 "offload_window_modules or prefetch_window sets one; remove slowdown or those "
                 "keys");
  }
}

[[noreturn]] void refuse_second_section(const TomlReader& section, const std::string& name,
                                        const std::string& first) {
  throw ConfigError("rules", to_string(section.location()) + ": [" + name + "] and [" + first +
                                 "] are both given; nothing says which comes first, so use one and "
                                 "add [[rule]]s for the rest");
}

void read_words(TomlReader& top, Rules& rules) {
  std::string first;
  for (const std::string name : {"internevo", "megatron", "paddle"}) {
    std::optional<TomlReader> section = top.table(name);
    if (!section) continue;
    if (!first.empty()) refuse_second_section(*section, name, first);
    first = name;
    if (name == "internevo") rules.settings = read_internevo(*section, rules.notes);
    if (name == "megatron") rules.settings = read_megatron(*section, rules.notes);
    if (name == "paddle") rules.settings = read_paddle(*section, rules.notes);
  }
}

}  // namespace

Rules read_rules(TomlReader& top) {
  Rules rules;
  std::vector<TomlReader> tables = top.tables("rule");
  std::optional<TomlReader> limits = top.table("limits");
  for (const char* name : {"internevo", "megatron", "paddle"}) (void)top.value(name);
  top.finish();  // A misspelt table first: what it was to say may explain everything else.
  for (const TomlReader& table : tables) rules.rules.push_back(read_rule(table));
  if (limits) read_limits(*limits, rules);
  read_words(top, rules);
  return rules;
}

Rules parse_rules(std::string_view text, std::string_view file_name) {
  const toml::table root = parse_toml(text, file_name);
  TomlReader top(root, std::string(file_name), "");
  return read_rules(top);
}

}  // namespace spillway
