/// Counts and flags that the host must know in the middle of a step.
#pragma once

#include <ATen/core/Tensor.h>

namespace spillway {

/// The tensor in host memory, once the current stream has made it: blocks until then. In a step of
/// a session the time is nobody's computing (untimed_wait()), and no call is noted.
///
/// On CUDA a kernel writes it. A copy, however small, would stand in the queue of the device's copy
/// engine behind all that sessions offload, and the model would wait with it for milliseconds.
/// Words cross the link one by one: for a few kilobytes, not for data.
///
/// Errors: InvalidArgument unless the tensor is of integers or booleans.
[[nodiscard]] at::Tensor read_back(const at::Tensor& tensor);

}  // namespace spillway
