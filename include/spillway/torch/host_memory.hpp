/// How much memory CPU tensors use, counted at torch's allocator as CUDA's allocator counts itself.
///
/// Counting begins with count_host_memory() and lasts until the process ends: what was allocated
/// before is not counted, and neither is its release. A session on the CPU begins it by itself, and
/// starts a new peak with every step.
/// Threads: any.
#pragma once

#include "spillway/core/bytes.hpp"

namespace spillway {

/// Puts a counting allocator in front of torch's present CPU allocator; later calls do nothing, and
/// neither does the first where that allocator keeps more than a pointer for each allocation.
void count_host_memory();

/// Counted allocations now; exact, in requested bytes.
[[nodiscard]] Bytes host_memory();

/// The peak since the last start_host_memory_peak().
[[nodiscard]] Bytes host_memory_peak();

/// Returns the peak until now and starts a new one from what is allocated now.
Bytes start_host_memory_peak();

}  // namespace spillway
