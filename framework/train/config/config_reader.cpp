#include <algorithm>
#include <sstream>

#include "plan/frontends/rules_reader.hpp"
#include "spillway/core/error.hpp"
#include "spillway/core/nearest.hpp"
#include "train/config/config_check.hpp"
#include "train/config/config_keys.hpp"
#include "util/files.hpp"
#include "util/toml_reader.hpp"

namespace spillway::app {
namespace {

constexpr const char* kOperation = "config";
const std::vector<std::string>& rule_tables() {
  static const std::vector<std::string> kTables = {"rule", "limits", "internevo", "megatron",
                                                   "paddle"};
  return kTables;
}

/// Puts one value into the config if the table has the key.
class KeyReader {
 public:
  KeyReader(TomlReader& table, const std::string& name, TrainConfig& config)
      : table_(table), name_(name), config_(config) {}

  void operator()(const WholeKey& kind) const {
    put(kind, table_.whole(name_, kind.least, kind.most));
  }
  void operator()(const NumberKey& kind) const {
    put(kind, table_.number(name_, kind.least, kind.most));
  }
  void operator()(const FlagKey& kind) const { put(kind, table_.flag(name_)); }
  void operator()(const WordKey& kind) const { put(kind, table_.word(name_, kind.words)); }
  void operator()(const TextKey& kind) const {
    const std::optional<std::string> text = table_.text(name_);
    if (text && !text->empty() && kind.check != nullptr) {
      try {
        kind.check(*text);
      } catch (const InvalidArgument& error) {
        const std::string what = error.what();
        throw ConfigError(kOperation, to_string(table_.location(name_)) + ": " + name_ + ": " +
                                          what.substr(error.operation().size() + 3));
      }
    }
    put(kind, text);
  }

 private:
  template <typename Kind, typename Value>
  void put(const Kind& kind, const std::optional<Value>& value) const {
    if (value) kind.member(config_) = *value;
  }

  TomlReader& table_;
  const std::string& name_;
  TrainConfig& config_;
};

/// The rules' tables of `memory`, formatted as they stand under [memory].
std::string text_of_rules(const toml::table& memory) {
  toml::table rules;
  for (const std::string& name : rule_tables()) {
    if (const toml::node* node = memory.get(name)) rules.insert(name, *node);
  }
  toml::table root;
  root.insert("memory", std::move(rules));
  std::ostringstream text;
  text << toml::toml_formatter{root, toml::format_flags::none} << "\n";
  return text.str();
}

class ConfigReader {
 public:
  void read(const toml::table& root, const std::string& source) {
    TomlReader top(root, source, "", kOperation);
    for (const std::string& name : config_tables()) (void)top.value(name);
    top.finish();  // A misspelt table first.
    for (const std::string& name : config_tables()) {
      std::optional<TomlReader> table = top.table(name);
      if (table) read_table(name, *root.get(name)->as_table(), *table);
    }
  }

  [[nodiscard]] TrainConfig finish() && {
    check_together(config_, locations_);
    return std::move(config_);
  }

 private:
  void read_table(const std::string& name, const toml::table& table, TomlReader& reader) {
    for (const ConfigKey& key : config_keys()) {
      if (key.table != name) continue;
      std::visit(KeyReader(reader, key.name, config_), key.kind);
      if (reader.has(key.name)) locations_[key.path()] = reader.location(key.name);
    }
    if (name != "memory") return reader.finish();
    const bool any = std::any_of(rule_tables().begin(), rule_tables().end(),
                                 [&](const std::string& each) { return reader.has(each); });
    Rules rules = read_rules(reader);
    if (any) config_.memory.inline_rules = InlineRules{std::move(rules), text_of_rules(table)};
  }

  TrainConfig config_;
  ConfigLocations locations_;
};

[[noreturn]] void refuse_override(const std::string& text, const std::string& why) {
  throw ConfigError(kOperation, "--set " + text + ": " + why);
}

/// The key that an override names.
const ConfigKey& key_of(const std::string& path, const std::string& text) {
  if (const ConfigKey* key = find_key(path)) return *key;
  for (const std::string& each : rule_tables()) {
    if (path == "memory." + each || path.starts_with("memory." + each + ".")) {
      refuse_override(text,
                      "rules are not set one by one; write them into the config or a file that "
                      "memory.rules names");
    }
  }
  std::vector<std::string> paths;
  for (const ConfigKey& key : config_keys()) {
    if (key.name == path) refuse_override(text, "did you mean \"" + key.path() + "\"?");
    paths.push_back(key.path());
  }
  refuse_override(text,
                  "unknown key \"" + path + "\"; " +
                      (nearest_word(path, paths) ? suggestion(path, paths)
                                                 : "`spillway config --defaults` lists them"));
}

bool is_text(const ConfigKey& key) {
  return std::holds_alternative<TextKey>(key.kind) || std::holds_alternative<WordKey>(key.kind);
}

/// As TOML, or as a text if the key takes a text or it is no TOML value.
toml::table value_of(const ConfigKey& key, const std::string& value) {
  const bool quoted = value.starts_with('"') || value.starts_with('\'');
  if (!is_text(key) || quoted) {
    const std::string assignment = "value = " + value;
    require_shallow_toml(assignment, "--set", kOperation);
    try {
      return toml::parse(assignment);
    } catch (const toml::parse_error&) {
      return toml::table{{"value", value}};
    }
  }
  return toml::table{{"value", value}};
}

void read_override(const std::string& text, ConfigReader& reader) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    refuse_override(text, "key=value wanted, such as --set model.layers=4");
  }
  const auto trimmed = [](std::string part) {
    part.erase(0, std::min(part.find_first_not_of(' '), part.size()));
    part.erase(part.find_last_not_of(' ') + 1);
    return part;
  };
  const ConfigKey& key = key_of(trimmed(text.substr(0, equals)), text);
  const toml::table parsed = value_of(key, trimmed(text.substr(equals + 1)));
  // Copies have no line and column, which would be those of a generated text.
  toml::table table;
  table.insert(key.name, *parsed.get("value"));
  toml::table root;
  root.insert(key.table, std::move(table));
  reader.read(root, "--set " + text);
}

}  // namespace

TrainConfig parse_config(std::string_view text, std::string_view file_name,
                         const std::vector<std::string>& overrides) {
  ConfigReader reader;
  reader.read(parse_toml(text, file_name, kOperation), std::string(file_name));
  for (const std::string& each : overrides) read_override(each, reader);
  return std::move(reader).finish();
}

TrainConfig load_config(const std::filesystem::path& path,
                        const std::vector<std::string>& overrides) {
  if (path.empty()) return parse_config("", "defaults", overrides);
  return parse_config(read_file(kOperation, path), path.string(), overrides);
}

std::optional<Rules> rules_of(const MemoryConfig& memory) {
  if (memory.inline_rules) return memory.inline_rules->rules;
  if (memory.rules.empty()) return std::nullopt;
  return load_rules(memory.rules);
}

}  // namespace spillway::app
