#include <algorithm>

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include "train/model/device_memory.hpp"
#include "train/model/host_memory.hpp"

namespace spillway::app {

namespace allocator = c10::cuda::CUDACachingAllocator;

c10::Device best_device() {
  const bool cuda = at::globalContext().hasCUDA() && c10::cuda::device_count() > 0;
  return cuda ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
}

c10::Device torch_device(DeviceChoice choice) {
  if (choice.kind == DeviceChoice::Kind::kHost) return c10::kCPU;
  if (choice.kind == DeviceChoice::Kind::kBest) return best_device();
  (void)open_gpu(choice.index);  // Its errors say which GPUs there are.
  const auto index = static_cast<c10::DeviceIndex>(choice.index);
  c10::cuda::set_device(index);
  return {c10::kCUDA, index};
}

std::uint64_t start_measuring_memory(c10::Device device) {
  if (!device.is_cuda()) return start_measuring_host_memory();
  c10::cuda::device_synchronize();
  allocator::resetPeakStats(device.index());
  return static_cast<std::uint64_t>(
      allocator::getDeviceStats(device.index()).allocated_bytes[0].current);
}

std::uint64_t peak_memory(c10::Device device) {
  if (!device.is_cuda()) return host_memory_peak().count();
  return static_cast<std::uint64_t>(
      allocator::getDeviceStats(device.index()).allocated_bytes[0].peak);
}

std::uint64_t reserved_memory(c10::Device device) {
  if (!device.is_cuda()) return 0;
  return static_cast<std::uint64_t>(
      allocator::getDeviceStats(device.index()).reserved_bytes[0].current);
}

void limit_reserved_memory(c10::Device device, std::optional<std::uint64_t> most) {
  if (!device.is_cuda()) return;
  double share = 1;
  if (most) {
    const c10::cuda::CUDAGuard guard(device);
    std::size_t free = 0;
    std::size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    share = std::min(share, static_cast<double>(*most) / static_cast<double>(total));
  }
  allocator::setMemoryFraction(share, device.index());
}

void wait_for_device(c10::Device device) {
  if (device.is_cuda()) c10::cuda::device_synchronize();
}

}  // namespace spillway::app
