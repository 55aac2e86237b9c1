/// The digest of bytes on a CUDA device, by one kernel; internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include "torch/device/byte_range.hpp"

namespace spillway {

/// Writes it into `number`, one of type long on the device of `storage`. Queued on torch's current
/// stream; waits for nothing. Where no kernel can be compiled, that is cuda_digest_on_host().
void cuda_digest(const c10::Storage& storage, ByteRange bytes, const at::Tensor& number);

/// The same without a kernel: copies the bytes to the host, and waits for that. Gives other
/// numbers than a kernel, so a process uses one of the two.
void cuda_digest_on_host(const c10::Storage& storage, ByteRange bytes, const at::Tensor& number);

/// The kernel's source, for tests where there is no device.
extern const char* const kCudaDigestSource;

}  // namespace spillway
