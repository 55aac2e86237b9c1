#include "util/toml_reader.hpp"

#include <algorithm>
#include <sstream>

#include "spillway/core/error.hpp"
#include "spillway/core/nearest.hpp"
#include "spillway/core/numbers.hpp"
#include "util/nesting.hpp"
#include "util/renamed.hpp"

namespace spillway {
namespace {

/// Whether toml++ writes it between single quotes as it is.
bool is_simple(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char each) { return each >= ' ' && each < '\x7f' && each != '\''; });
}

std::string as_text(const toml::node& node) {
  if (const auto* const whole = node.as_integer()) return std::to_string(whole->get());
  if (const auto* const real = node.as_floating_point()) return shortest(real->get());
  if (const auto* const words = node.as_string(); words && is_simple(words->get())) {
    return "'" + words->get() + "'";
  }
  if (const auto* const flag = node.as_boolean()) return flag->get() ? "true" : "false";
  std::ostringstream text;
  node.visit([&text](const auto& value) { text << value; });
  return text.str();
}

std::string describe_found(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string:
      return "the text " + as_text(node);
    case toml::node_type::integer:
    case toml::node_type::floating_point:
      return "the number " + as_text(node);
    case toml::node_type::array:
      return "a list";
    case toml::node_type::table:
      return "a table";
    case toml::node_type::boolean:
    case toml::node_type::date:
    case toml::node_type::time:
    case toml::node_type::date_time:
    case toml::node_type::none:
      return as_text(node);
  }
  return {};
}

/// `error`'s text without "[operation] ".
std::string detail_of(const Error& error) {
  const std::string text = error.what();
  return text.substr(error.operation().size() + 3);
}

}  // namespace

std::string to_string(const SourceLocation& location) {
  if (location.file.empty()) return {};
  if (location.line == 0) return location.file;
  return location.file + ":" + std::to_string(location.line) + ":" +
         std::to_string(location.column);
}

void require_shallow_toml(std::string_view text, std::string_view file_name,
                          std::string_view operation) {
  const std::optional<int> line = line_of_deep_toml(text);
  if (!line) return;
  const std::string most = std::to_string(kMostTomlNesting);
  throw ConfigError(operation, std::string(file_name) + ":" + std::to_string(*line) +
                                   ": nested too deeply: a key has at most " + most +
                                   " parts, and at most " + most +
                                   " lists and tables are within each other; write fewer");
}

toml::table parse_toml(std::string_view text, std::string_view file_name,
                       std::string_view operation) {
  require_shallow_toml(text, file_name, operation);
  try {
    return toml::parse(text, file_name);
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    throw ConfigError(operation, std::string(file_name) + ":" + std::to_string(at.line) + ":" +
                                     std::to_string(at.column) +
                                     ": not TOML: " + std::string(error.description()));
  }
}

const toml::node* TomlReader::value(std::string_view key) {
  if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) asked_.emplace_back(key);
  return find(key);
}

void TomlReader::accept_old_name(std::string_view key, std::string_view old) {
  if (!table_.contains(old)) return;
  if (table_.contains(key)) refuse(old, "is the old name of " + std::string(key) + "; give one");
  warn_renamed(operation_ + " key", old, key);
  asked_.emplace_back(old);
  old_names_.emplace_back(key, old);
}

const toml::node* TomlReader::find(std::string_view key) const {
  for (const auto& [name, old] : old_names_) {
    if (name == key) return table_.get(old);
  }
  return table_.get(key);
}

std::optional<std::string> TomlReader::text(std::string_view key) {
  const toml::node* node = value(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_string()) refuse_type(key, "a text");
  return **node->as_string();
}

std::optional<bool> TomlReader::flag(std::string_view key) {
  const toml::node* node = value(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_boolean()) refuse_type(key, "true or false");
  return **node->as_boolean();
}

std::optional<std::int64_t> TomlReader::whole(std::string_view key, std::int64_t least,
                                              std::int64_t most) {
  const toml::node* node = value(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_integer()) refuse_type(key, "a whole number");
  const std::int64_t found = **node->as_integer();
  if (found < least) refuse_value(key, "it must be at least " + std::to_string(least));
  if (found > most) refuse_value(key, "it must be at most " + std::to_string(most));
  return found;
}

std::optional<double> TomlReader::number(std::string_view key, double least, double most) {
  const toml::node* node = value(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_number()) refuse_type(key, "a number");
  const double found = *node->value<double>();
  if (!(found >= least && found <= most)) {
    refuse_value(key, "it must be from " + shortest(least) + " to " + shortest(most));
  }
  return found;
}

std::optional<Bytes> TomlReader::size(std::string_view key) {
  const toml::node* node = value(key);
  if (node == nullptr) return std::nullopt;
  if (node->is_integer()) {
    const std::int64_t count = **node->as_integer();
    if (count < 0) refuse_value(key, "a size cannot be negative");
    const Bytes bytes(static_cast<std::uint64_t>(count));
    if (bytes > kMostBytes) refuse_value(key, "a size is at most " + to_string(kMostBytes));
    return bytes;
  }
  if (!node->is_string()) refuse_type(key, "a size such as \"1 MiB\" or a number of bytes");
  try {
    return parse_bytes(**node->as_string());
  } catch (const InvalidArgument& error) {
    refuse(key, detail_of(error));
  }
}

std::optional<std::vector<std::string>> TomlReader::texts(std::string_view key) {
  const toml::node* node = value(key);
  if (node == nullptr) return std::nullopt;
  if (node->is_string()) return std::vector<std::string>{**node->as_string()};
  if (!node->is_array()) refuse_type(key, "a text or a list of texts");
  std::vector<std::string> found;
  for (const toml::node& each : *node->as_array()) {
    if (!each.is_string()) refuse_type(key, "a text or a list of texts");
    found.push_back(**each.as_string());
  }
  if (found.empty()) refuse_value(key, "an empty list matches nothing; leave the key out");
  return found;
}

std::string TomlReader::check_word(std::string_view key, const toml::node& node,
                                   const std::vector<std::string>& words) const {
  if (!node.is_string()) refuse_type(key, "a word");
  std::string word = **node.as_string();
  if (std::find(words.begin(), words.end(), word) != words.end()) return word;
  throw ConfigError(operation_, to_string(location_of(node.source())) + ": " + std::string(key) +
                                    ": unknown word \"" + word + "\"; " + suggestion(word, words));
}

std::optional<std::vector<std::string>> TomlReader::words(std::string_view key,
                                                          const std::vector<std::string>& words) {
  const toml::node* node = value(key);
  if (node == nullptr) return std::nullopt;
  if (node->is_string()) return std::vector<std::string>{check_word(key, *node, words)};
  if (!node->is_array()) refuse_type(key, "a word or a list of words");
  std::vector<std::string> found;
  for (const toml::node& each : *node->as_array()) found.push_back(check_word(key, each, words));
  return found;
}

std::optional<std::string> TomlReader::word(std::string_view key,
                                            const std::vector<std::string>& words) {
  const toml::node* node = value(key);
  if (node == nullptr) return std::nullopt;
  return check_word(key, *node, words);
}

std::optional<TomlReader> TomlReader::table(std::string_view key) {
  const toml::node* node = value(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_table()) refuse_type(key, "a table");
  const std::string title =
      title_.empty() ? "[" + std::string(key) + "]" : title_ + " " + std::string(key);
  return TomlReader(*node->as_table(), file_, title, operation_);
}

std::vector<TomlReader> TomlReader::tables(std::string_view key) {
  const toml::node* node = value(key);
  std::vector<TomlReader> found;
  if (node == nullptr) return found;
  if (!node->is_array() || !node->as_array()->is_homogeneous(toml::node_type::table)) {
    refuse(key, "must be written [[" + std::string(key) + "]]");
  }
  for (const toml::node& each : *node->as_array()) {
    found.emplace_back(*each.as_table(), file_, "[[" + std::string(key) + "]]", operation_);
  }
  return found;
}

void TomlReader::finish() const {
  for (const auto& [key, node] : table_) {
    if (std::find(asked_.begin(), asked_.end(), key.str()) != asked_.end()) continue;
    throw ConfigError(operation_, to_string(location_of(key.source())) + ": unknown key \"" +
                                      std::string(key.str()) + "\"" +
                                      (title_.empty() ? "" : " in " + title_) + "; " +
                                      suggestion(key.str(), asked_));
  }
}

SourceLocation TomlReader::location_of(const toml::source_region& region) const {
  return {file_, static_cast<int>(region.begin.line), static_cast<int>(region.begin.column)};
}

SourceLocation TomlReader::location() const { return location_of(table_.source()); }

SourceLocation TomlReader::location(std::string_view key) const {
  const toml::node* node = find(key);
  return node == nullptr ? location() : location_of(node->source());
}

void TomlReader::refuse(std::string_view key, const std::string& detail) const {
  throw ConfigError(operation_, to_string(location(key)) + ": " + std::string(key) + " " + detail);
}

void TomlReader::refuse_type(std::string_view key, std::string_view wanted) const {
  const toml::node* node = find(key);
  throw ConfigError(operation_, to_string(location(key)) + ": " + std::string(key) + ": " +
                                    std::string(wanted) + " wanted, found " +
                                    (node == nullptr ? "nothing" : describe_found(*node)));
}

void TomlReader::refuse_value(std::string_view key, const std::string& reason) const {
  const toml::node* node = find(key);
  throw ConfigError(operation_, to_string(location(key)) + ": " + std::string(key) + " = " +
                                    (node == nullptr ? "nothing" : as_text(*node)) +
                                    " is impossible: " + reason);
}

}  // namespace spillway
