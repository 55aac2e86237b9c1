/// A saved tensor without its memory; internal.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>
#include <c10/util/accumulate.h>

namespace spillway {

/// The metadata of a tensor, sufficient to make an equal one on another storage.
class TensorWindow {
 public:
  TensorWindow() = default;
  explicit TensorWindow(const at::Tensor& tensor);

  /// A tensor without history that views `storage` as the original viewed its own.
  [[nodiscard]] at::Tensor on(const c10::Storage& storage) const { return on(storage, 0); }
  /// The same `shift` elements further.
  [[nodiscard]] at::Tensor on(const c10::Storage& storage, std::int64_t shift) const;

  /// A tensor of that shape on that device, of which only the shape may be read.
  [[nodiscard]] at::Tensor without_memory() const;

  /// Errors: what autograd itself would throw if the tensor was changed in place since.
  void require_unmodified() const;

  [[nodiscard]] at::ScalarType dtype() const { return c10::typeMetaToScalarType(dtype_); }
  [[nodiscard]] at::IntArrayRef sizes() const { return sizes_; }
  [[nodiscard]] at::IntArrayRef strides() const { return strides_; }
  [[nodiscard]] std::int64_t offset() const { return offset_; }
  [[nodiscard]] c10::Device device() const { return device_; }
  [[nodiscard]] std::int64_t elements() const { return c10::multiply_integers(sizes_); }
  /// Whether its elements follow each other in memory.
  [[nodiscard]] bool is_contiguous() const;
  [[nodiscard]] std::uint32_t version() const { return saved_version_; }
  /// Shared with the tensor: its version now.
  [[nodiscard]] const c10::VariableVersion& counter() const { return version_; }

 private:
  caffe2::TypeMeta dtype_;
  c10::SmallVector<std::int64_t, 5> sizes_;
  c10::SmallVector<std::int64_t, 5> strides_;
  std::int64_t offset_ = 0;
  c10::DispatchKeySet keys_;
  c10::Device device_{c10::kCPU};
  c10::VariableVersion version_;  // Shared with the tensor and its views; holds no memory.
  std::uint32_t saved_version_ = 0;
};

/// Whether a tensor is dense and strided: a storage with sizes and strides and nothing else. All
/// other tensors are not managed.
[[nodiscard]] bool is_ordinary(const at::Tensor& tensor);

/// The same tensor without its history. Keeps the storage, not the graph.
[[nodiscard]] at::Tensor without_history(const at::Tensor& tensor);

}  // namespace spillway
