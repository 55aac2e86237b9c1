#include "spillway/core/numbers.hpp"

#include <array>
#include <charconv>
#include <system_error>

namespace spillway {

std::optional<std::int64_t> whole_number(std::string_view text) noexcept {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return std::nullopt;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

std::string with_decimals(double number, int decimals) {
  std::array<char, 512> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number,
                                          std::chars_format::fixed, decimals);
  return error == std::errc() ? std::string(text.data(), end) : shortest(number);
}

std::string milliseconds_text(std::int64_t ns) {
  return with_decimals(static_cast<double>(ns) / 1e6, 1) + " ms";
}

std::string shortest(double number) {
  std::array<char, 64> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number);
  return {text.data(), end};
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

}  // namespace spillway
