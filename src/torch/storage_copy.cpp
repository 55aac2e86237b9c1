#include "storage_copy.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace spillway {

c10::Storage copy_of(const c10::Storage& storage) {
  const at::NoGradGuard no_gradients;
  const auto bytes = static_cast<std::int64_t>(storage.nbytes());
  const at::Tensor copy = at::empty({bytes}, at::TensorOptions(at::kByte).device(storage.device()));
  copy.copy_(at::empty({0}, copy.options()).set_(storage, 0, {bytes}, {1}));
  return copy.storage();
}

}  // namespace spillway
