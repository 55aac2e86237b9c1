/// The digest of a storage in host memory; internal.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <c10/core/Storage.h>

#include "util/digest.hpp"

namespace spillway {

/// A number of type long. Computed by the calling thread.
inline at::Tensor host_digest(const c10::Storage& storage) {
  Digest digest;
  digest.add(std::span(static_cast<const std::byte*>(storage.data()), storage.nbytes()));
  return at::full({}, static_cast<std::int64_t>(digest.value()), at::kLong);
}

}  // namespace spillway
