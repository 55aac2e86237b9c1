#include "plan/policy/fold.hpp"

#include <charconv>
#include <cstddef>
#include <iterator>

namespace spillway {
namespace {

/// Stands for a number in a shape; no scope has it.
constexpr char kNumber = '\1';

bool is_number(std::string_view text) {
  constexpr std::size_t kMostDigits = 9;  // What an int can hold.
  return !text.empty() && text.size() <= kMostDigits &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string ranges(const std::set<int>& numbers) {
  std::string text;
  for (auto first = numbers.begin(); first != numbers.end();) {
    auto last = first;
    auto after = std::next(first);
    while (after != numbers.end() && *after == *last + 1) last = after++;
    if (!text.empty()) text += ',';
    text += std::to_string(*first);
    if (last != first) text += ".." + std::to_string(*last);
    first = after;
  }
  return text;
}

}  // namespace

FoldedScope fold(std::string_view scope) {
  FoldedScope folded;
  for (;;) {
    const std::size_t dot = scope.find('.');
    const std::string_view part = scope.substr(0, dot);
    if (is_number(part)) {
      int number = 0;
      std::from_chars(part.data(), part.data() + part.size(), number);
      folded.numbers.push_back({number});
      folded.shape += kNumber;
    } else {
      folded.shape += part;
    }
    if (dot == std::string_view::npos) return folded;
    folded.shape += '.';
    scope.remove_prefix(dot + 1);
  }
}

void FoldedScope::add(const FoldedScope& other) {
  for (std::size_t i = 0; i < numbers.size() && i < other.numbers.size(); ++i) {
    numbers[i].insert(other.numbers[i].begin(), other.numbers[i].end());
  }
}

std::string FoldedScope::text() const {
  std::string text;
  std::size_t next = 0;
  for (const char each : shape) {
    if (each == kNumber && next < numbers.size()) {
      text += ranges(numbers[next++]);
    } else {
      text += each;
    }
  }
  return text;
}

}  // namespace spillway
