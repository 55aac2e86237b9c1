/// Scopes that differ only in numbers, as one text: "layers.0..9,12.mlp".
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

/// A scope whose numbers were taken out, and these numbers, in order.
struct FoldedScope {
  std::string shape;
  std::vector<std::set<int>> numbers;

  /// Takes in another scope of the same shape.
  void add(const FoldedScope& other);
  [[nodiscard]] std::string text() const;
};

[[nodiscard]] FoldedScope fold(std::string_view scope);

}  // namespace spillway
