/// A part of a storage; internal.
#pragma once

#include <cstddef>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace spillway {

struct ByteRange {
  std::size_t begin = 0;
  std::size_t size = 0;

  [[nodiscard]] static ByteRange whole(const c10::Storage& storage) {
    return {0, storage.nbytes()};
  }
  /// From a tensor's first element to its last one.
  [[nodiscard]] static ByteRange of(const at::Tensor& tensor) {
    const std::size_t item = tensor.dtype().itemsize();
    return {static_cast<std::size_t>(tensor.storage_offset()) * item,
            at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), item)};
  }

  [[nodiscard]] bool is_in(const c10::Storage& storage) const {
    return storage.data() != nullptr && begin + size <= storage.nbytes();
  }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

}  // namespace spillway
