/// Whether a rule's conditions hold for a buffer.
#pragma once

#include <vector>

#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"

namespace spillway {

/// The buffers of one chunk, with what rules ask that the profile has only in parts.
class Matcher {
 public:
  /// Keeps a reference to `chunk`. `layers`: those of the model.
  Matcher(const ChunkProfile& chunk, int layers);

  [[nodiscard]] bool matches(const Rule& rule, const BufferProfile& buffer) const;

  /// The first of `words` whose module saved the buffer, as its place in the list; their number if
  /// none did.
  [[nodiscard]] static std::size_t first_module(const std::vector<std::string>& words,
                                                const BufferProfile& buffer);

 private:
  [[nodiscard]] bool in_layers(const Rule& rule, const BufferProfile& buffer) const;
  [[nodiscard]] bool big_enough(const Rule& rule, const BufferProfile& buffer) const;

  int layers_;
  std::vector<std::uint64_t> elements_;  // By buffer.
};

}  // namespace spillway
