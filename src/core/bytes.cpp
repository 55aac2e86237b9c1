#include "spillway/core/bytes.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <limits>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

constexpr std::string_view kAccepted =
    R"(write a number and a unit, such as "8 GiB", "1.5 GB", "512 MiB" or "0")";

constexpr const char* kTooLarge = "more than 256 TiB";

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr std::array<Unit, 9> kUnits = {{
    {"b", 1},
    {"kb", 1'000},
    {"mb", 1'000'000},
    {"gb", 1'000'000'000},
    {"tb", 1'000'000'000'000},
    {"kib", std::uint64_t{1} << 10U},
    {"mib", std::uint64_t{1} << 20U},
    {"gib", std::uint64_t{1} << 30U},
    {"tib", std::uint64_t{1} << 40U},
}};

[[noreturn]] void refuse(std::string_view text, std::size_t position, const std::string& reason) {
  throw InvalidArgument("bytes", "cannot read \"" + std::string(text) + "\" as a size: " + reason +
                                     " at character " + std::to_string(position + 1) + "; " +
                                     std::string(kAccepted));
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t skip_spaces(std::string_view text, std::size_t at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  return at;
}

std::uint64_t factor_of(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin == end) return 1;
  std::string lower;
  for (std::size_t i = begin; i < end; ++i) {
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(text[i])));
  }
  for (const Unit& unit : kUnits) {
    if (unit.name == lower) return unit.factor;
  }
  refuse(text, begin, "unknown unit \"" + std::string(text.substr(begin, end - begin)) + "\"");
}

}  // namespace

Bytes parse_bytes(std::string_view text) {
  const std::size_t begin = skip_spaces(text, 0);
  std::size_t at = begin;
  if (at == text.size()) refuse(text, at, "there is no number");
  if (!is_digit(text[at])) {
    refuse(text, at, text[at] == '-' ? "a size cannot be negative" : "a number was expected");
  }

  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  constexpr std::uint64_t kMost = kMostBytes.count();
  std::uint64_t whole = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    const auto digit = static_cast<std::uint64_t>(text[at] - '0');
    if (whole > (kMax - digit) / 10) refuse(text, begin, kTooLarge);
    whole = whole * 10 + digit;
  }

  // Six decimals times the largest unit still fit into 64 bits.
  std::uint64_t fraction = 0;
  std::uint64_t scale = 1;
  if (at < text.size() && text[at] == '.') {
    const std::size_t first = ++at;
    for (; at < text.size() && is_digit(text[at]); ++at) {
      if (at - first == 6) refuse(text, at, "more than six decimals");
      fraction = fraction * 10 + static_cast<std::uint64_t>(text[at] - '0');
      scale *= 10;
    }
    if (at == first) refuse(text, at, "digits were expected after the point");
  }

  const std::size_t unit_begin = skip_spaces(text, at);
  std::size_t unit_end = unit_begin;
  while (unit_end < text.size() && std::isalpha(static_cast<unsigned char>(text[unit_end])) != 0) {
    ++unit_end;
  }
  const std::size_t rest = skip_spaces(text, unit_end);
  if (rest != text.size()) {
    refuse(text, rest, "unexpected \"" + std::string(1, text[rest]) + "\"");
  }

  const std::uint64_t factor = factor_of(text, unit_begin, unit_end);
  const std::uint64_t part = fraction * factor / scale;
  if (whole > (kMost - std::min(part, kMost)) / factor) refuse(text, begin, kTooLarge);
  return Bytes(whole * factor + part);
}

std::string to_string(Bytes value) {
  constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (value.count() < 1024) return std::to_string(value.count()) + " B";
  auto scaled = static_cast<double>(value.count());
  std::size_t unit = 0;
  // 1023.95 would print as "1024.0": go on to the next unit instead.
  while (unit + 1 < kNames.size() && std::round(scaled * 10) >= 10240) {
    scaled /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s", scaled, kNames[unit]);
  return text.data();
}

}  // namespace spillway
