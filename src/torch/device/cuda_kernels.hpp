/// Kernels from source text, compiled by NVRTC when they are first wanted; internal.
/// Threads: any.
#pragma once

#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <cuda_runtime_api.h>

namespace spillway {

/// Machine code for devices of that compute capability (90), which need not be there. Empty where
/// it cannot be had; `problem` says why.
[[nodiscard]] std::vector<char> compile_kernel(const std::string& source, int capability,
                                               std::string& problem);

/// The function `name` of `source`, which must be extern "C". Compiled once in a process, in a
/// tenth of a second or two. Null where there is no compiler; a warning says so once for each.
[[nodiscard]] cudaKernel_t find_kernel(const std::string& source, const char* name, int capability);

/// 90 for compute capability 9.0.
[[nodiscard]] int compute_capability(c10::DeviceIndex device);

}  // namespace spillway
