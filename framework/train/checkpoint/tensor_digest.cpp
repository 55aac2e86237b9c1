#include "train/checkpoint/tensor_digest.hpp"

#include <cstring>

#include "util/digest.hpp"

namespace spillway::app {

NamedDigest tensor_digest(const NamedTensor& tensor) {
  const at::Tensor bytes = tensor.tensor.detach().cpu().contiguous();
  const std::string_view type = c10::toString(bytes.scalar_type());
  Digest hash;
  // Lengths go first, so that no two different tensors give the same sequence of bytes.
  hash.add(tensor.name.size());
  hash.add(tensor.name);
  hash.add(type.size());
  hash.add(type);
  hash.add(static_cast<std::uint64_t>(bytes.dim()));
  for (const std::int64_t size : bytes.sizes()) hash.add(static_cast<std::uint64_t>(size));
  hash.add(std::span(static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()));
  return {tensor.name, hash.value()};
}

}  // namespace spillway::app
