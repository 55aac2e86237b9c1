/// Sharding: of a buffer that is equal on several ranks each rank stores one part; the parts are
/// all-gathered before its use.
#pragma once

#include <cstdint>
#include <vector>

namespace spillway {

struct ChunkPlan;

/// Parts begin at multiples of this, and all are of one size: the last ones are padded.
inline constexpr std::uint64_t kPartAlignment = 512;

/// The bytes that each of `ranks` stores of a buffer of `bytes`.
[[nodiscard]] constexpr std::uint64_t part_of(std::uint64_t bytes, int ranks) {
  const auto count = static_cast<std::uint64_t>(ranks);
  const std::uint64_t even = (bytes + count - 1) / count;
  return (even + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

/// When a chunk's sharded buffers are all-gathered. By id; anchors follow the buffers' ids.
struct GatherOrder {
  /// The position in the order in which backward needs them, from 1.
  std::vector<int> position;
  /// Once backward asks for the buffer, all-gathers up to this position have begun; 0: no more than
  /// before. One more than there are positions: also the first one of the pass whose backward is
  /// next.
  std::vector<int> due;
};

/// The next all-gather begins while compute still has work before its use. Where layers are
/// recomputed it begins only when so much of the current layer is released that it makes no new
/// peak. Depends on the plan alone, so it is the same on all ranks.
[[nodiscard]] GatherOrder gather_order(const ChunkPlan& plan);

/// The ranks among which sessions share buffers, for predictions.
struct ShardModel {
  int ranks = 1;  ///< 1: nothing is sharded, whatever a plan says.
  /// How fast the parts of other ranks arrive, one gather at a time; 0: at once.
  double bytes_per_second = 0;
};

}  // namespace spillway
