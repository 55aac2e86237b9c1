/// Limits in bytes under which a simulated step runs while its residency lists are found. Internal.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/records.hpp"

namespace spillway {

/// Bytes of managed items on the device, of all passes, by chunk, then by site or by index in the
/// order of unpacks.
using ChunkTargets = std::vector<std::vector<std::int64_t>>;

struct ByteTargets {
  std::int64_t budget = EngineLimits::kNone;  ///< Of all bytes.
  ChunkTargets forward;   ///< After a save no more is to be there, if that can be.
  ChunkTargets backward;  ///< Up to this, items are prefetched at an unpack.
  /// A buffer that stays for longer than its copy takes has others allocated around it and leaves
  /// holes: less may be pending release, or prefetched, than there is room for.
  std::int64_t pending_release = EngineLimits::kNone;
  std::int64_t prefetch = EngineLimits::kNone;
};

}  // namespace spillway
