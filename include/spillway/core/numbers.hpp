/// Numbers from and to text without streams. In a Python process, whose libraries were built by
/// other compilers than this one, streams were seen to read 0 for every number. Nor does the user's
/// locale matter here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

/// The whole number that `text` begins with, after blanks; nothing if it begins with none or with
/// one that is too large.
[[nodiscard]] std::optional<std::int64_t> whole_number(std::string_view text) noexcept;

/// "3.14" for two decimals.
[[nodiscard]] std::string with_decimals(double number, int decimals);

/// "3.1 ms" of nanoseconds.
[[nodiscard]] std::string milliseconds_text(std::int64_t ns);

/// As few digits as it takes to read the same number again: "0.5", "1e+20".
[[nodiscard]] std::string shortest(double number);

/// `text` and blanks up to `width`.
[[nodiscard]] std::string padded(std::string text, std::size_t width);

}  // namespace spillway
