#include "train/model/device_memory.hpp"
#include "train/model/host_memory.hpp"

namespace spillway::app {

c10::Device best_device() { return c10::kCPU; }

c10::Device torch_device(DeviceChoice choice) {
  if (choice.kind == DeviceChoice::Kind::kGpu) (void)open_gpu(choice.index);  // Says why not.
  return c10::kCPU;
}

std::uint64_t start_measuring_memory(c10::Device /*device*/) {
  return start_measuring_host_memory();
}

std::uint64_t peak_memory(c10::Device /*device*/) { return host_memory_peak().count(); }

std::uint64_t reserved_memory(c10::Device /*device*/) { return 0; }

void limit_reserved_memory(c10::Device /*device*/, std::optional<std::uint64_t> /*most*/) {}

void wait_for_device(c10::Device /*device*/) {}

}  // namespace spillway::app
