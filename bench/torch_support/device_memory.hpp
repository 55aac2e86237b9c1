/// The allocator's statistics of whatever device there is; 0 on the CPU, which keeps none.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

namespace spillway::bench {

/// The first CUDA device, or the CPU.
[[nodiscard]] c10::Device best_device();

/// Waits for the device and starts a new peak; gives what is allocated now.
std::uint64_t start_measuring_memory(c10::Device device);
[[nodiscard]] std::uint64_t peak_memory(c10::Device device);
/// What the allocator holds of the device, in use or not.
[[nodiscard]] std::uint64_t reserved_memory(c10::Device device);
void wait_for_device(c10::Device device);

}  // namespace spillway::bench
