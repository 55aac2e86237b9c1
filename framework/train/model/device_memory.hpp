/// The torch device that training runs on, and its allocator's statistics; on the CPU what is
/// counted since they were asked for first. device_memory_cuda.cpp is built where spillway::cuda is
/// there, device_memory_host.cpp elsewhere.
#pragma once

#include <cstdint>
#include <optional>

#include <c10/core/Device.h>

#include "devices/devices.hpp"

namespace spillway::app {

/// The first CUDA device, or the CPU.
[[nodiscard]] c10::Device best_device();

/// The device of that choice, which becomes this thread's current one.
/// Errors: InvalidArgument if there is no such GPU.
[[nodiscard]] c10::Device torch_device(DeviceChoice choice);

/// Waits for the device and starts a new peak; gives what is allocated now.
std::uint64_t start_measuring_memory(c10::Device device);
[[nodiscard]] std::uint64_t peak_memory(c10::Device device);
/// What the allocator has reserved of the device, in use or not; 0 on the CPU.
[[nodiscard]] std::uint64_t reserved_memory(c10::Device device);
/// Asks the allocator to reserve no more than `most`, in use or not: beyond it, it frees what is
/// not in use, which waits for the device, and throws c10::OutOfMemoryError if that is
/// not enough. Nothing: all of the device. Does nothing on the CPU.
void limit_reserved_memory(c10::Device device, std::optional<std::uint64_t> most);
void wait_for_device(c10::Device device);

}  // namespace spillway::app
