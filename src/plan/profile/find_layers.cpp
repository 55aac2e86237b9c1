#include "plan/profile/find_layers.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace spillway {
namespace {

/// The number behind `prefix` and a dot in `scope`; -1 if there is none.
int number_after(const std::string& scope, const std::string& prefix) {
  if (scope.size() < prefix.size() + 2 || scope.compare(0, prefix.size(), prefix) != 0) return -1;
  const std::size_t begin = prefix.empty() ? 0 : prefix.size() + 1;
  if (!prefix.empty() && scope[prefix.size()] != '.') return -1;
  int number = -1;
  const char* const first = scope.data() + begin;
  const char* const last = scope.data() + scope.size();
  const auto [end, error] = std::from_chars(first, last, number);
  if (error != std::errc() || (end != last && *end != '.')) return -1;
  return number;
}

/// Every prefix of `scope` that is followed by a number.
std::vector<std::string> numbered_prefixes(const std::string& scope) {
  std::vector<std::string> prefixes;
  for (std::size_t dot = scope.find('.'); dot != std::string::npos;
       dot = scope.find('.', dot + 1)) {
    const std::string prefix = scope.substr(0, dot);
    if (number_after(scope, prefix) >= 0) prefixes.push_back(prefix);
  }
  return prefixes;
}

}  // namespace

void find_layers(Profile& profile, const std::string& wanted) {
  std::map<std::string, std::set<int>> lists;
  for (const ChunkProfile& chunk : profile.chunks) {
    for (const OperatorProfile& call : chunk.operators) {
      for (const std::string& prefix : numbered_prefixes(call.scope)) {
        if (!wanted.empty() && prefix != wanted) continue;
        lists[prefix].insert(number_after(call.scope, prefix));
      }
    }
  }
  // The longest list; of equal ones the outermost, which comes first.
  const auto longest =
      std::max_element(lists.begin(), lists.end(), [](const auto& a, const auto& b) {
        return a.second.size() != b.second.size() ? a.second.size() < b.second.size()
                                                  : a.first.size() > b.first.size();
      });
  if (longest == lists.end()) return;
  profile.layer_scope = longest->first;
  profile.layers = *longest->second.rbegin() + 1;
  for (ChunkProfile& chunk : profile.chunks) {
    std::set<int> found;
    const auto layer_of = [&](const std::string& scope) {
      const int layer = number_after(scope, profile.layer_scope);
      if (layer >= 0) found.insert(layer);
      return layer;
    };
    for (OperatorProfile& call : chunk.operators) call.layer = layer_of(call.scope);
    for (BufferProfile& buffer : chunk.buffers) {
      buffer.layer = layer_of(buffer.position.scope);
      buffer.producer.layer = layer_of(buffer.producer.scope);
    }
    if (found.empty()) continue;
    chunk.first_layer = *found.begin();
    chunk.layers = *found.rbegin() - *found.begin() + 1;
  }
}

}  // namespace spillway
