/// How read_back() reads from CUDA; internal.
#pragma once

#include <ATen/core/Tensor.h>

namespace spillway {

/// A CUDA tensor of integers in host memory, written by a kernel; waits for it.
[[nodiscard]] at::Tensor written_by_kernel(const at::Tensor& tensor);

}  // namespace spillway
