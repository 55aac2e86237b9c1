/// Copies of storages; internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace spillway {

/// The same bytes in memory of their own, copied on the current stream.
[[nodiscard]] c10::Storage copy_of(const c10::Storage& storage);

/// The bytes of `storage` as a tensor on it: all, or `size` from `begin` on.
[[nodiscard]] at::Tensor bytes_of(const c10::Storage& storage);
[[nodiscard]] at::Tensor bytes_of(const c10::Storage& storage, std::size_t begin, std::size_t size);

}  // namespace spillway
