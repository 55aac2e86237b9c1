#include "plan/policy/glob.hpp"

#include <algorithm>
#include <cstddef>

namespace spillway {

bool glob_matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  // Where to go on with the last star taking one character more.
  std::size_t star = std::string_view::npos;
  std::size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool scope_matches(std::string_view pattern, std::string_view scope) {
  if (pattern.ends_with('.')) return glob_matches(pattern.substr(0, pattern.size() - 1), scope);
  for (std::size_t end = scope.size();; end = scope.rfind('.', end - 1)) {
    if (end == std::string_view::npos) return false;
    if (glob_matches(pattern, scope.substr(0, end))) return true;
    if (end == 0) return false;
  }
}

bool any_glob_matches(const std::vector<std::string>& patterns, std::string_view text) {
  return patterns.empty() ||
         std::any_of(patterns.begin(), patterns.end(),
                     [text](const std::string& pattern) { return glob_matches(pattern, text); });
}

bool any_scope_matches(const std::vector<std::string>& patterns, std::string_view scope) {
  return patterns.empty() ||
         std::any_of(patterns.begin(), patterns.end(),
                     [scope](const std::string& pattern) { return scope_matches(pattern, scope); });
}

}  // namespace spillway
