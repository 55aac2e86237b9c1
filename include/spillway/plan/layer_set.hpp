/// Which of the repeated layers: "3", "0..9", "0..9,12", "-1" for the last.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spillway {

/// Both ends belong to it. Negative numbers count from the end of the model's layers.
struct LayerRange {
  int first = 0;
  int last = 0;

  bool operator==(const LayerRange&) const = default;
};

/// Ranges as they were written; they may overlap and are not joined, because groups of layers are
/// counted from the start of each.
struct LayerSet {
  std::vector<LayerRange> ranges;

  /// The range of this set that `layer` is in, counted from 0; nothing (last < first) if it is in
  /// none. `layers`: how many the model has.
  [[nodiscard]] LayerRange range_of(int layer, int layers) const;
  [[nodiscard]] bool contains(int layer, int layers) const;

  bool operator==(const LayerSet&) const = default;
};

/// Errors: InvalidArgument with the text, what is wrong and what is accepted.
[[nodiscard]] LayerSet parse_layers(std::string_view text);

/// The text that parse_layers() reads as the same set.
[[nodiscard]] std::string to_string(const LayerSet& layers);

}  // namespace spillway
