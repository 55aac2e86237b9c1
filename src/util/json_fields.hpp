/// One list of fields a type, for both directions of JSON. A type takes part by a function
///   template <typename Fields, typename Value> void describe(Fields& fields, Value& value)
/// in this namespace that calls `fields("name", value.member)` for each member, in the order of the
/// document. Optional members are left out when empty; everything else must be there. An
/// enumeration takes part by to_string() and all_values(). Digests are written as 16 digits, by
/// `fields.digest("name", value.member)`; 0 and an empty list of them are left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "spillway/core/bytes.hpp"
#include "util/digest.hpp"

namespace spillway {

using Json = nlohmann::ordered_json;

/// The largest whole number that is read, either way: as far as JSON's readers agree on numbers. In
/// nanoseconds, 104 days.
inline constexpr std::int64_t kMostWhole = std::int64_t{1} << 53U;

/// How a long list of `T` is written: as an object of columns. A type takes part by a
/// specialisation with `using Columns`, a described struct of vectors, and
///   static Columns split(const std::vector<T>& rows);
///   static std::vector<T> join(const Columns& columns, const JsonPath&, const JsonSource&);
template <typename T>
struct JsonColumns {};

template <typename T>
concept InColumns = requires {
  typename JsonColumns<T>::Columns;
};

/// What error texts begin with: "[profile] p.json: ".
struct JsonSource {
  std::string_view operation;
  std::string_view file;
};

/// Where in the document, as a chain on the stack: "chunks[0].buffers[3].size".
class JsonPath {
 public:
  JsonPath() = default;
  JsonPath(const JsonPath& parent, std::string_view name) : parent_(&parent), name_(name) {}
  JsonPath(const JsonPath& parent, std::size_t index) : parent_(&parent), index_(index) {}

  [[nodiscard]] std::string text() const;

 private:
  const JsonPath* parent_ = nullptr;
  std::string_view name_;
  std::optional<std::size_t> index_;
};

/// Errors: ConfigError "[operation] file: path: detail", always.
[[noreturn]] void refuse(const JsonSource& source, const JsonPath& path, const std::string& detail);
/// The same with "<wanted> wanted, found <value>".
[[noreturn]] void refuse_value(const JsonSource& source, const JsonPath& path,
                               std::string_view wanted, const Json& value);
/// The same for a word that is none of `words`.
[[noreturn]] void refuse_word(const JsonSource& source, const JsonPath& path,
                              const std::string& word, const std::vector<std::string>& words);

/// Numbers that point to something must point to one of the `count` things, called `what`, that the
/// chunk has.
/// Errors: ConfigError as refuse().
void check_index(int number, std::size_t count, const char* what, const JsonPath& path,
                 const JsonSource& source);
void check_indices(const std::vector<int>& numbers, std::size_t count, const char* what,
                   const JsonPath& path, const JsonSource& source);

/// The document, whose field "schema" is one of the two: this one or the one before.
/// Errors: ConfigError if the text is not JSON, is no object, or is of neither schema.
[[nodiscard]] Json parse_document(std::string_view text, const JsonSource& source,
                                  std::string_view schema, std::string_view old_schema);

/// As many values to a line as fit.
[[nodiscard]] std::string readable(const Json& json);

/// Writes the fields of one value.
class JsonWriter {
 public:
  template <typename T>
  void operator()(const char* name, const std::optional<T>& member) {
    if (member) (*this)(name, *member);
  }
  template <typename T>
  void operator()(const char* name, const T& member) {
    json_[name] = write_value(member);
  }
  /// A field that holds one of `words`, which all mean the same: the first of them.
  void only(const char* name, std::initializer_list<std::string_view> words,
            std::string_view /*why*/) {
    json_[name] = *words.begin();
  }

  void digest(const char* name, std::uint64_t member) {
    if (member != 0) json_[name] = digest_text(member);
  }
  void digest(const char* name, const std::vector<std::uint64_t>& members) {
    for (const std::uint64_t member : members) json_[name].push_back(digest_text(member));
  }

  template <typename T>
  [[nodiscard]] static Json write_value(const T& value) {
    if constexpr (std::is_same_v<T, Bytes>) {
      return value.count();
    } else if constexpr (std::is_enum_v<T>) {
      return std::string(to_string(value));
    } else if constexpr (std::is_class_v<T> && !std::is_same_v<T, std::string>) {
      JsonWriter fields;
      describe(fields, value);
      return std::move(fields.json_);
    } else {
      return value;
    }
  }
  template <typename T>
  [[nodiscard]] static Json write_value(const std::vector<T>& values) {
    if constexpr (InColumns<T>) {
      return write_value(JsonColumns<T>::split(values));
    } else {
      Json json = Json::array();
      for (const T& value : values) json.push_back(write_value(value));
      return json;
    }
  }

 private:
  Json json_ = Json::object();
};

void read_value(const Json& json, const JsonPath& path, const JsonSource& source, bool& value);
void read_value(const Json& json, const JsonPath& path, const JsonSource& source, int& value);
void read_value(const Json& json, const JsonPath& path, const JsonSource& source,
                std::int64_t& value);
void read_value(const Json& json, const JsonPath& path, const JsonSource& source, Bytes& value);
void read_value(const Json& json, const JsonPath& path, const JsonSource& source, double& value);
void read_value(const Json& json, const JsonPath& path, const JsonSource& source,
                std::string& value);
void read_digest(const Json& json, const JsonPath& path, const JsonSource& source,
                 std::uint64_t& value);
void read_digest(const Json& json, const JsonPath& path, const JsonSource& source,
                 std::vector<std::uint64_t>& values);

/// Reads the fields of one value. Unknown fields are errors, and so are missing ones.
class JsonReader {
 public:
  JsonReader(const Json& json, const JsonPath& path, const JsonSource& source);

  template <typename T>
  void operator()(const char* name, std::optional<T>& member) {
    if (const Json* field = find(name, false)) {
      read(*field, JsonPath(path_, name), source_, member.emplace());
    }
  }
  template <typename T>
  void operator()(const char* name, T& member) {
    if (const Json* field = find(name, true)) read(*field, JsonPath(path_, name), source_, member);
  }
  /// `why`: the reason why it cannot be another word, for the error.
  void only(const char* name, std::initializer_list<std::string_view> words, std::string_view why);

  template <typename T>
  void digest(const char* name, T& member) {
    member = {};
    if (const Json* field = find(name, false)) {
      read_digest(*field, JsonPath(path_, name), source_, member);
    }
  }

  /// Errors: ConfigError for the first field that is unknown, else for the first that is missing.
  void finish() const;

  template <typename T>
  static void read(const Json& json, const JsonPath& path, const JsonSource& source, T& value) {
    if constexpr (std::is_enum_v<T>) {
      std::string word;
      read_value(json, path, source, word);
      std::vector<std::string> words;
      for (const T each : all_values(value)) {
        if (word == to_string(each)) return void(value = each);
        words.emplace_back(to_string(each));
      }
      refuse_word(source, path, word, words);
    } else if constexpr (std::is_class_v<T> && !std::is_same_v<T, std::string> &&
                         !std::is_same_v<T, Bytes>) {
      JsonReader fields(json, path, source);
      describe(fields, value);
      fields.finish();
    } else {
      read_value(json, path, source, value);
    }
  }
  template <typename T>
  static void read(const Json& json, const JsonPath& path, const JsonSource& source,
                   std::vector<T>& values) {
    if constexpr (InColumns<T>) {
      typename JsonColumns<T>::Columns columns;
      read(json, path, source, columns);
      values = JsonColumns<T>::join(columns, path, source);
    } else {
      if (!json.is_array()) refuse_value(source, path, "a list", json);
      values.clear();
      for (const Json& each : json) {
        const std::size_t index = values.size();
        read(each, JsonPath(path, index), source, values.emplace_back());
      }
    }
  }

 private:
  [[nodiscard]] const Json* find(const char* name, bool required);

  const Json& json_;
  const JsonPath& path_;
  const JsonSource& source_;
  std::vector<std::string> known_;
  std::optional<std::string> missing_;
};

/// A document of `schema`, or of the one before, as a value.
template <typename T>
[[nodiscard]] T read_document(std::string_view text, const JsonSource& source,
                              std::string_view schema, std::string_view old_schema) {
  Json json = parse_document(text, source, schema, old_schema);
  json.erase("schema");
  T value;
  JsonReader::read(json, JsonPath(), source, value);
  return value;
}

template <typename T>
[[nodiscard]] std::string write_document(const T& value, std::string_view schema) {
  Json json = {{"schema", schema}};
  json.update(JsonWriter::write_value(value));
  return readable(json) + "\n";
}

}  // namespace spillway
