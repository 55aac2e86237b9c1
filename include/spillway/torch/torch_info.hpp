/// Which LibTorch this program runs on, as values that need no torch header.
#pragma once

#include <string>

namespace spillway {

struct TorchInfo {
  std::string version;        ///< "2.11.0".
  std::string cuda_version;   ///< "13.0", of the CUDA runtime; empty for a CPU build.
  std::string cudnn_version;  ///< "9.10.2"; empty without cuDNN.
  bool sees_cuda = false;     ///< torch finds a device it can use.
  bool computes = false;      ///< A small sum on the CPU came out right.
  int threads = 0;            ///< Threads of one CPU operator.
};

/// Asks the linked LibTorch, and has it compute something small on the CPU. Makes no CUDA context.
/// Errors: whatever torch throws when it is broken; a std::exception.
[[nodiscard]] TorchInfo torch_info();

}  // namespace spillway
