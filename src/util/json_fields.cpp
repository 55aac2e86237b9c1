#include "util/json_fields.hpp"

#include <algorithm>
#include <limits>

#include "spillway/core/error.hpp"
#include "spillway/core/nearest.hpp"
#include "util/nesting.hpp"

namespace spillway {
namespace {

constexpr std::size_t kColumns = 320;

std::string flat(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// "spillway.plan/3" -> "spillway.plan/".
std::string_view family(std::string_view schema) { return schema.substr(0, schema.find('/') + 1); }

std::string describe_found(const Json& json) {
  switch (json.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return json.get<bool>() ? "true" : "false";
    case Json::value_t::string:
      return "the text " + flat(json);
    case Json::value_t::array:
      return "a list";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float:
    case Json::value_t::binary:
    case Json::value_t::discarded:
      return "the number " + flat(json);
  }
  return {};
}

bool is_scalar_list(const Json& json) {
  return json.is_array() && std::none_of(json.begin(), json.end(),
                                         [](const Json& each) { return each.is_structured(); });
}

/// Numbers and words, as many to a line as fit.
void write_filled(const Json& list, const std::string& indent, std::string& text) {
  text += '[';
  std::size_t column = kColumns;
  for (auto each = list.begin(); each != list.end(); ++each) {
    const std::string word = flat(*each);
    if (each != list.begin()) text += ',';
    if (column + word.size() + 1 > kColumns) {
      text += '\n' + indent;
      column = indent.size();
    }
    text += word;
    column += word.size() + 1;
  }
  text += ']';
}

void write_readable(const Json& json, std::size_t indent, std::string& text) {
  const std::string line = flat(json);
  if (!json.is_structured() || indent + line.size() <= kColumns) {
    text += line;
    return;
  }
  const std::string inner(indent + 1, ' ');
  if (is_scalar_list(json)) return write_filled(json, inner, text);
  text += json.is_object() ? "{\n" : "[\n";
  for (auto each = json.begin(); each != json.end(); ++each) {
    text += each == json.begin() ? inner : ",\n" + inner;
    if (json.is_object()) text += flat(each.key()) + ": ";
    write_readable(*each, indent + 1, text);
  }
  text += '\n' + std::string(indent, ' ') + (json.is_object() ? '}' : ']');
}

}  // namespace

std::string JsonPath::text() const {
  if (parent_ == nullptr) return {};
  const std::string before = parent_->text();
  if (index_) return before + "[" + std::to_string(*index_) + "]";
  return before + (before.empty() ? "" : ".") + std::string(name_);
}

void refuse(const JsonSource& source, const JsonPath& path, const std::string& detail) {
  const std::string where = path.text();
  throw ConfigError(source.operation, std::string(source.file) + ": " +
                                          (where.empty() ? "the document" : where) + ": " + detail);
}

void refuse_value(const JsonSource& source, const JsonPath& path, std::string_view wanted,
                  const Json& value) {
  refuse(source, path, std::string(wanted) + " wanted, found " + describe_found(value));
}

void refuse_word(const JsonSource& source, const JsonPath& path, const std::string& word,
                 const std::vector<std::string>& words) {
  refuse(source, path, "unknown word \"" + word + "\"; " + suggestion(word, words));
}

void check_index(int number, std::size_t count, const char* what, const JsonPath& path,
                 const JsonSource& source) {
  if (number >= 0 && static_cast<std::size_t>(number) < count) return;
  refuse(source, path,
         "there is no " + std::string(what) + " " + std::to_string(number) + "; this chunk has " +
             std::to_string(count));
}

void check_indices(const std::vector<int>& numbers, std::size_t count, const char* what,
                   const JsonPath& path, const JsonSource& source) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    check_index(numbers[i], count, what, JsonPath(path, i), source);
  }
}

Json parse_document(std::string_view text, const JsonSource& source, std::string_view schema,
                    std::string_view old_schema) {
  if (const std::optional<int> line = line_of_deep_json(text)) {
    refuse(source, JsonPath(),
           "line " + std::to_string(*line) + " is nested too deeply: at most " +
               std::to_string(kMostJsonNesting) + " lists and objects are within each other");
  }
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    const std::string_view what = error.what();  // "[json.exception...] parse error at line ..."
    const std::size_t end = what.find("] ");
    refuse(
        source, JsonPath(),
        "is not JSON: " + std::string(end == std::string_view::npos ? what : what.substr(end + 2)));
  }
  const JsonPath root;
  if (!json.is_object()) refuse_value(source, root, "an object", json);
  const auto found = json.find("schema");
  const JsonPath schema_path(root, "schema");
  const std::string wanted = "\"" + std::string(schema) + "\"";
  if (found == json.end()) refuse(source, schema_path, "missing; " + wanted + " wanted");
  if (found->is_string()) {
    const auto name = found->get<std::string>();
    if (name == schema || name == old_schema) return json;
    if (family(name) == family(schema)) {
      refuse(source, schema_path,
             wanted + " wanted, found " + flat(*found) +
                 ": another version of Spillway wrote it; create it with this version");
    }
  }
  refuse_value(source, schema_path, wanted, *found);
}

std::string readable(const Json& json) {
  std::string text;
  write_readable(json, 0, text);
  return text;
}

void read_value(const Json& json, const JsonPath& path, const JsonSource& source, bool& value) {
  if (!json.is_boolean()) refuse_value(source, path, "true or false", json);
  value = json.get<bool>();
}

void read_value(const Json& json, const JsonPath& path, const JsonSource& source, int& value) {
  std::int64_t wide = 0;
  read_value(json, path, source, wide);
  if (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max()) {
    refuse_value(source, path, "a whole number of 32 bits", json);
  }
  value = static_cast<int>(wide);
}

void read_value(const Json& json, const JsonPath& path, const JsonSource& source,
                std::int64_t& value) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!json.is_number_integer() ||
      (json.is_number_unsigned() && json.get<std::uint64_t>() > kMax)) {
    refuse_value(source, path, "a whole number", json);
  }
  value = json.get<std::int64_t>();
  if (value > kMostWhole || value < -kMostWhole) {
    refuse_value(
        source, path,
        "a whole number from -" + std::to_string(kMostWhole) + " to " + std::to_string(kMostWhole),
        json);
  }
}

void read_value(const Json& json, const JsonPath& path, const JsonSource& source, Bytes& value) {
  if (!json.is_number_unsigned()) {
    refuse_value(source, path, "a number of bytes", json);
  }
  value = Bytes(json.get<std::uint64_t>());
  if (value > kMostBytes) {
    refuse_value(source, path, "a number of bytes up to " + std::to_string(kMostBytes.count()),
                 json);
  }
}

void read_value(const Json& json, const JsonPath& path, const JsonSource& source, double& value) {
  if (!json.is_number()) refuse_value(source, path, "a number", json);
  value = json.get<double>();
}

void read_value(const Json& json, const JsonPath& path, const JsonSource& source,
                std::string& value) {
  if (!json.is_string()) refuse_value(source, path, "a text", json);
  value = json.get<std::string>();
}

void read_digest(const Json& json, const JsonPath& path, const JsonSource& source,
                 std::uint64_t& value) {
  const std::optional<std::uint64_t> digest =
      json.is_string() ? parse_digest(json.get_ref<const std::string&>()) : std::nullopt;
  if (!digest) refuse_value(source, path, "a digest of 16 digits", json);
  value = *digest;
}

void read_digest(const Json& json, const JsonPath& path, const JsonSource& source,
                 std::vector<std::uint64_t>& values) {
  if (!json.is_array()) refuse_value(source, path, "a list", json);
  for (const Json& each : json) {
    const std::size_t index = values.size();
    read_digest(each, JsonPath(path, index), source, values.emplace_back());
  }
}

JsonReader::JsonReader(const Json& json, const JsonPath& path, const JsonSource& source)
    : json_(json), path_(path), source_(source) {
  if (!json.is_object()) refuse_value(source, path, "an object", json);
}

const Json* JsonReader::find(const char* name, bool required) {
  known_.emplace_back(name);
  const auto found = json_.find(name);
  if (found != json_.end()) return &*found;
  if (required && !missing_) missing_ = name;
  return nullptr;
}

void JsonReader::only(const char* name, std::initializer_list<std::string_view> words,
                      std::string_view why) {
  const Json* const field = find(name, true);
  if (field == nullptr) return;
  const JsonPath path(path_, name);
  std::string word;
  read_value(*field, path, source_, word);
  if (std::find(words.begin(), words.end(), word) != words.end()) return;
  std::string wanted;
  for (const std::string_view each : words) {
    wanted += (wanted.empty() ? "\"" : " or \"") + std::string(each) + "\"";
  }
  refuse(source_, path,
         wanted + " wanted, found " + describe_found(*field) + ": " + std::string(why));
}

void JsonReader::finish() const {
  for (auto each = json_.begin(); each != json_.end(); ++each) {
    if (std::find(known_.begin(), known_.end(), each.key()) == known_.end()) {
      refuse(source_, JsonPath(path_, each.key()),
             "unknown field; " + suggestion(each.key(), known_));
    }
  }
  if (missing_) refuse(source_, JsonPath(path_, *missing_), "missing");
}

}  // namespace spillway
