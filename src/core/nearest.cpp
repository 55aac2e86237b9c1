#include "spillway/core/nearest.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace spillway {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::optional<std::string> nearest_word(std::string_view word,
                                        const std::vector<std::string>& words) {
  std::optional<std::string> nearest;
  std::size_t best = std::max<std::size_t>(word.size() / 2, 2) + 1;
  for (const std::string& candidate : words) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& words) {
  if (const auto near = nearest_word(word, words)) return "did you mean \"" + *near + "\"?";
  std::string text;
  for (const std::string& each : words) text += (text.empty() ? "" : ", ") + each;
  return "there are: " + text;
}

}  // namespace spillway
