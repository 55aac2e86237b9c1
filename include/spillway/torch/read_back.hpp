/// Reads counts and flags that the host needs in the middle of a step.
#pragma once

#include <ATen/core/Tensor.h>

namespace spillway {

/// The tensor in host memory; blocks until the current stream has computed it. In a step of a
/// session the time does not count as compute (untimed_wait()), and no call is recorded.
///
/// On CUDA a kernel writes it. A copy, however small, would queue on the device's copy engine
/// behind the offloads of sessions, and the model would wait for milliseconds. Words cross the link
/// one by one: use it for a few kilobytes only.
///
/// Errors: InvalidArgument unless the tensor is of integers or booleans.
[[nodiscard]] at::Tensor read_back(const at::Tensor& tensor);

}  // namespace spillway
