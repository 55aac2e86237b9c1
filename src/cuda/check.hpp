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

/// While it lives, this thread may call what no CUDA graph can contain although another thread
/// captures one: none of it reaches the captured stream.
class BesideCaptures {
 public:
  BesideCaptures() noexcept { exchange(); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;
  ~BesideCaptures() { exchange(); }

 private:
  void exchange() noexcept { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace spillway::detail
