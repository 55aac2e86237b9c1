/// What sharding comes to: a buffer that several ranks hold alike is cut into a part for each of
/// them, and gathered again before its use.
#pragma once

#include <cstdint>
#include <vector>

namespace spillway {

struct ChunkPlan;

/// Parts begin at multiples of this, and all are of one size: the last ones are padded.
inline constexpr std::uint64_t kPartAlignment = 512;

/// What each of `ranks` holds of so many bytes.
[[nodiscard]] constexpr std::uint64_t part_of(std::uint64_t bytes, int ranks) {
  const auto count = static_cast<std::uint64_t>(ranks);
  const std::uint64_t even = (bytes + count - 1) / count;
  return (even + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

/// When a chunk's sharded buffers are gathered. By id; anchors count on from the buffers' ids.
struct GatherOrder {
  /// The place in the order in which backward wants them, from 1.
  std::vector<int> place;
  /// Once backward asks for the buffer, gathers up to this place have begun; 0: no more than
  /// before. One more than there are places: and the first one of the pass whose backward comes
  /// next.
  std::vector<int> due;
};

/// The next gather begins while compute still has what to do before its use, but where layers are
/// recomputed not before so much of the present one is done with that it makes no new peak. Follows
/// from the plan alone, so that it is the same on all ranks.
[[nodiscard]] GatherOrder gather_order(const ChunkPlan& plan);

/// The ranks among which sessions share buffers, for predictions.
struct ShardModel {
  int ranks = 1;  ///< 1: nothing is sharded, whatever a plan says.
  /// How fast the parts of other ranks arrive, one gather at a time; 0: at once.
  double bytes_per_second = 0;
};

}  // namespace spillway
