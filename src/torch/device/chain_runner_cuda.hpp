/// Chains on a CUDA device: kernels that NVRTC compiles on first use; internal.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "torch/device/chain_runner.hpp"

namespace spillway {

/// Kernels are compiled once in a process, in a tenth of a second or two each. Where there is no
/// compiler, or the device is older than compute capability 8.0, run() is false.
[[nodiscard]] std::unique_ptr<ChainRunner> make_cuda_chain_runner(c10::DeviceIndex device);

/// Machine code of a program for devices of that compute capability (90); no such device is needed.
/// Empty if it cannot be compiled; then `problem` has the reason.
[[nodiscard]] std::vector<char> compile_chain(const ChainProgram& program, int capability,
                                              std::string& problem);

}  // namespace spillway
