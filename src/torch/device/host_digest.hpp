/// The digest of a storage in host memory; internal.
#pragma once

#include <cstdint>
#include <span>

#include <c10/core/Storage.h>

#include "util/digest.hpp"

namespace spillway {

/// Computed by the calling thread.
inline std::int64_t host_digest(const c10::Storage& storage) {
  Digest digest;
  digest.add(std::span(static_cast<const std::byte*>(storage.data()), storage.nbytes()));
  return static_cast<std::int64_t>(digest.value());
}

}  // namespace spillway
