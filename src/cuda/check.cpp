#include "check.hpp"

#include <string>

#include "spillway/core/error.hpp"

namespace spillway::detail {

void check(cudaError_t code, std::string_view operation, int device) {
  if (code == cudaSuccess) return;
  // Clears an error that does not stick, so that it is not blamed on the next call.
  (void)cudaGetLastError();
  const std::string found = "cuda:" + std::to_string(device) + " answered " +
                            cudaGetErrorName(code) + " (" + cudaGetErrorString(code) + ")";
  if (code == cudaErrorMemoryAllocation) {
    throw OutOfMemory(operation, found + "; lower the budget or free device memory");
  }
  throw DeviceError(operation, found +
                                   "; errors of kernels queued before show up here too: run "
                                   "with CUDA_LAUNCH_BLOCKING=1 to find the first one");
}

}  // namespace spillway::detail
