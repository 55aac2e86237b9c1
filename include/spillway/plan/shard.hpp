/// What sharding comes to: a buffer that several ranks hold alike is cut into a part for each of
/// them, and gathered again before its use.
#pragma once

#include <cstdint>

namespace spillway {

/// Parts begin at multiples of this, and all are of one size: the last ones are padded.
inline constexpr std::uint64_t kPartAlignment = 512;

/// What each of `ranks` holds of so many bytes.
[[nodiscard]] constexpr std::uint64_t part_of(std::uint64_t bytes, int ranks) {
  const auto count = static_cast<std::uint64_t>(ranks);
  const std::uint64_t even = (bytes + count - 1) / count;
  return (even + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

/// The ranks among which sessions share buffers, for predictions.
struct ShardModel {
  int ranks = 1;  ///< 1: nothing is sharded, whatever a plan says.
  /// How fast the parts of other ranks arrive, one gather at a time; 0: at once.
  double bytes_per_second = 0;
};

}  // namespace spillway
