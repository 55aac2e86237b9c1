/// How deep a text nests, before a parser or a destructor descends as deep: each level costs them
/// stack, and a file may have as many as it likes.
#pragma once

#include <optional>
#include <string_view>

namespace spillway {

/// No document of ours has more than ten levels.
inline constexpr int kMostJsonNesting = 64;
/// Of lists and inline tables within each other, and of parts in one dotted key or table name.
inline constexpr int kMostTomlNesting = 32;

/// The line, counted from 1, where JSON text has more than kMostJsonNesting lists and objects
/// within each other; nothing if it never has. Text that is no JSON is read as far as it is.
[[nodiscard]] std::optional<int> line_of_deep_json(std::string_view text);

/// The same for TOML and kMostTomlNesting.
[[nodiscard]] std::optional<int> line_of_deep_toml(std::string_view text);

}  // namespace spillway
