/// How much memory tensors on the CPU have, counted at torch's allocator, as CUDA's allocator does
/// by itself.
///
/// Counting begins with count_host_memory() and goes on until the process ends: what was allocated
/// before is not counted, and neither is its release. A session on the CPU begins it by itself, and
/// starts a new peak with every step.
/// Threads: any.
#pragma once

#include "spillway/core/bytes.hpp"

namespace spillway {

/// Puts a counting allocator in front of torch's present CPU allocator; later calls do nothing, and
/// neither does the first where that allocator keeps more than a pointer for each allocation.
void count_host_memory();

/// What is allocated now of what was counted; exact, in bytes as they were asked for.
[[nodiscard]] Bytes host_memory();

/// The most that was allocated at once since the last start.
[[nodiscard]] Bytes host_memory_peak();

/// Gives the peak until now, and starts a new one from what is allocated now.
Bytes start_host_memory_peak();

}  // namespace spillway
