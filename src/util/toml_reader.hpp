/// Reads TOML key by key and says exactly what is wrong and where.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Where toml++ is compiled with us, it reads numbers as numbers.hpp does.
#if !defined(TOML_FLOAT_CHARCONV) && (!defined(TOML_HEADER_ONLY) || TOML_HEADER_ONLY)
#define TOML_FLOAT_CHARCONV 1
#endif
#include <toml++/toml.h>

#include "spillway/core/bytes.hpp"
#include "spillway/core/source_location.hpp"

namespace spillway {

/// toml++ needs stack for each level of a text.
/// Errors: ConfigError with the line, if the text nests more than nesting.hpp allows.
void require_shallow_toml(std::string_view text, std::string_view file_name,
                          std::string_view operation);

/// `operation`: what error texts begin with, here and below.
/// Errors: ConfigError if the text is not TOML, or as require_shallow_toml().
[[nodiscard]] toml::table parse_toml(std::string_view text, std::string_view file_name,
                                     std::string_view operation = "rules");

/// One table of a file. Every key the table may have is asked for once, then finish() refuses the
/// others. A key that is not there is nothing; one of another type or value is an error.
///
/// Lifetime: the table outlives the reader.
/// Errors: ConfigError "[operation] file:line:column: key ...", from every function. Line and
/// column are left out where the table was not parsed but made.
class TomlReader {
 public:
  /// `title`: the name of the table in error texts: "[limits]"; empty for the file itself.
  TomlReader(const toml::table& table, std::string file, std::string title,
             std::string operation = "rules")
      : table_(table),
        file_(std::move(file)),
        title_(std::move(title)),
        operation_(std::move(operation)) {}

  [[nodiscard]] std::optional<std::string> text(std::string_view key);
  [[nodiscard]] std::optional<bool> flag(std::string_view key);
  [[nodiscard]] std::optional<std::int64_t> whole(std::string_view key, std::int64_t least,
                                                  std::int64_t most);
  [[nodiscard]] std::optional<double> number(std::string_view key, double least, double most);
  /// "1 MiB" or a whole number of bytes.
  [[nodiscard]] std::optional<Bytes> size(std::string_view key);
  /// A text or a list of texts; not an empty list.
  [[nodiscard]] std::optional<std::vector<std::string>> texts(std::string_view key);
  /// As texts(), each one of `words`.
  [[nodiscard]] std::optional<std::vector<std::string>> words(
      std::string_view key, const std::vector<std::string>& words);
  [[nodiscard]] std::optional<std::string> word(std::string_view key,
                                                const std::vector<std::string>& words);
  [[nodiscard]] std::optional<TomlReader> table(std::string_view key);
  /// The tables of [[key]].
  [[nodiscard]] std::vector<TomlReader> tables(std::string_view key);

  /// `old` is the previous name of `key`, and is read instead of it with a warning. Call it before
  /// `key` is asked for.
  void accept_old_name(std::string_view key, std::string_view old);

  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  /// The value, whatever its type, for keys with several; counts as asked for.
  [[nodiscard]] const toml::node* value(std::string_view key);

  /// Refuses keys that were not asked for.
  void finish() const;

  /// The location of the table, or of the value of a key.
  [[nodiscard]] SourceLocation location() const;
  [[nodiscard]] SourceLocation location(std::string_view key) const;

  /// "<location of key>: <key> <detail>".
  [[noreturn]] void refuse(std::string_view key, const std::string& detail) const;
  /// "<key>: <wanted> wanted, found <value>".
  [[noreturn]] void refuse_type(std::string_view key, std::string_view wanted) const;
  /// "<key> = <value> is impossible: <reason>".
  [[noreturn]] void refuse_value(std::string_view key, const std::string& reason) const;

 private:
  [[nodiscard]] std::string check_word(std::string_view key, const toml::node& node,
                                       const std::vector<std::string>& words) const;
  [[nodiscard]] const toml::node* find(std::string_view key) const;
  [[nodiscard]] SourceLocation location_of(const toml::source_region& region) const;

  const toml::table& table_;
  std::string file_;
  std::string title_;
  std::string operation_;
  std::vector<std::string> asked_;
  std::vector<std::pair<std::string, std::string>> old_names_;  // New, old; of those in the table.
};

}  // namespace spillway
