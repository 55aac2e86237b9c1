/// What the backend asks of tensors.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "spillway/core/error.hpp"

namespace spillway::mpi {

/// Errors: InvalidArgument unless the tensor is contiguous and on the CPU.
inline void check_tensor(const char* operation, const at::Tensor& tensor) {
  if (tensor.defined() && tensor.is_cpu() && tensor.is_contiguous()) return;
  throw InvalidArgument(operation,
                        "MPI moves contiguous tensors on the CPU; copy this one to such a tensor");
}

inline std::int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.nbytes());
}

}  // namespace spillway::mpi
