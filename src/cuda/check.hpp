/// Turning CUDA's return codes into errors, and minding the current device; internal.
#pragma once

#include <string_view>

#include <cuda_runtime_api.h>

namespace spillway::detail {

/// Errors: OutOfMemory for cudaErrorMemoryAllocation, else DeviceError; the text names the device.
void check(cudaError_t code, std::string_view operation, int device);

/// Makes `device` current and puts the former one back.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = device;
    if (before_ != device) {
      check(cudaSetDevice(device), "set device", device);
      changed_ = true;
    }
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() {
    if (changed_) (void)cudaSetDevice(before_);
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace spillway::detail
