/// A number that two storages share if they hold the same bits; internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace spillway {

/// One 64-bit number on the storage's device. Other bits give another one, but for a chance of
/// 2^-64 or so. Queued on the current stream; waits for nothing.
[[nodiscard]] at::Tensor digest_of(const c10::Storage& storage);

}  // namespace spillway
