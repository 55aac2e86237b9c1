/// Whether a rule's conditions hold for a buffer.
#pragma once

#include <string>
#include <vector>

#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"

namespace spillway {

/// `rule 2 "norms" (memory.toml:14)`; `index` counts from 0.
[[nodiscard]] std::string name_of(const Rule& rule, std::size_t index);

/// The buffers and values of one chunk, with what rules ask that the profile has only in parts.
class Matcher {
 public:
  /// Keeps a reference to `chunk`. `layers`: those of the model.
  Matcher(const ChunkProfile& chunk, int layers);

  [[nodiscard]] bool matches(const Rule& rule, const BufferProfile& buffer) const;

  /// The same for a value that an operator made and autograd did not save, as if the operator
  /// itself had saved it in `layer`. Rules that ask for a saver or for elements do not hold.
  [[nodiscard]] bool matches(const Rule& rule, const ValueProfile& value, int layer) const;

  /// The first of `words` whose module saved the buffer, as its index in the list; their number if
  /// none did.
  [[nodiscard]] static std::size_t first_module(const std::vector<std::string>& words,
                                                const BufferProfile& buffer);

 private:
  [[nodiscard]] bool in_layers(const Rule& rule, const BufferProfile& buffer) const;
  [[nodiscard]] bool enters_group(const Rule& rule, int layer, int made_in) const;
  [[nodiscard]] bool big_enough(const Rule& rule, const BufferProfile& buffer) const;

  const ChunkProfile& chunk_;
  int layers_;
  std::vector<std::uint64_t> elements_;          // By buffer.
  std::vector<std::vector<int>> reader_layers_;  // By buffer, without that of its first save.
};

/// The first layer of the group that `layer` is in by `rule`, whose group_inputs is given; -1 if
/// the rule is not about that layer.
[[nodiscard]] int group_of(const Rule& rule, int layer, int layers);

}  // namespace spillway
