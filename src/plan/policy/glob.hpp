/// Patterns: `*` is any text, dots included, `?` one character, everything else itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spillway {

[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view text);

/// Whether the pattern matches the scope or one that it lies in; with a dot at the pattern's end,
/// only the scope itself.
[[nodiscard]] bool scope_matches(std::string_view pattern, std::string_view scope);

/// Whether one of the patterns matches, or there are none.
[[nodiscard]] bool any_glob_matches(const std::vector<std::string>& patterns,
                                    std::string_view text);
[[nodiscard]] bool any_scope_matches(const std::vector<std::string>& patterns,
                                     std::string_view scope);

}  // namespace spillway
