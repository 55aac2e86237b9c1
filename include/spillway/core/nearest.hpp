/// The valid word that somebody probably meant, for error texts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

/// The one of `words` that takes the fewest changes to become `word`, the first of equals; nothing
/// if all are far off.
[[nodiscard]] std::optional<std::string> nearest_word(std::string_view word,
                                                      const std::vector<std::string>& words);

/// What an error text ends with: `did you mean "offload"?`, or, if all are far off,
/// `there are: keep, offload, recompute`.
[[nodiscard]] std::string suggestion(std::string_view word, const std::vector<std::string>& words);

}  // namespace spillway
