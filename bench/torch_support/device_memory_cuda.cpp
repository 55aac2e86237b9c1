#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include "torch_support/device_memory.hpp"

namespace spillway::bench {

namespace allocator = c10::cuda::CUDACachingAllocator;

c10::Device best_device() {
  const bool cuda = at::globalContext().hasCUDA() && c10::cuda::device_count() > 0;
  return cuda ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
}

std::uint64_t start_measuring_memory(c10::Device device) {
  if (!device.is_cuda()) return 0;
  c10::cuda::device_synchronize();
  allocator::resetPeakStats(device.index());
  return static_cast<std::uint64_t>(
      allocator::getDeviceStats(device.index()).allocated_bytes[0].current);
}

std::uint64_t peak_memory(c10::Device device) {
  if (!device.is_cuda()) return 0;
  return static_cast<std::uint64_t>(
      allocator::getDeviceStats(device.index()).allocated_bytes[0].peak);
}

std::uint64_t reserved_memory(c10::Device device) {
  if (!device.is_cuda()) return 0;
  return static_cast<std::uint64_t>(
      allocator::getDeviceStats(device.index()).reserved_bytes[0].current);
}

void wait_for_device(c10::Device device) {
  if (device.is_cuda()) c10::cuda::device_synchronize();
}

}  // namespace spillway::bench
