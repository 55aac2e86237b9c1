#include "torch/graph/storage_copy.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace spillway {

c10::Storage copy_of(const c10::Storage& storage) {
  const at::NoGradGuard no_gradients;
  const auto bytes = static_cast<std::int64_t>(storage.nbytes());
  const at::Tensor copy = at::empty({bytes}, at::TensorOptions(at::kByte).device(storage.device()));
  copy.copy_(bytes_of(storage));
  return copy.storage();
}

at::Tensor bytes_of(const c10::Storage& storage) { return bytes_of(storage, 0, storage.nbytes()); }

at::Tensor bytes_of(const c10::Storage& storage, std::size_t begin, std::size_t size) {
  const at::NoGradGuard no_gradients;
  return at::empty({0}, at::TensorOptions(at::kByte).device(storage.device()))
      .set_(storage, static_cast<std::int64_t>(begin), {static_cast<std::int64_t>(size)}, {1});
}

}  // namespace spillway
