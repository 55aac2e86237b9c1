/// The digest of bytes in host memory; internal.
#pragma once

#include <cstdint>
#include <span>

#include <c10/core/Storage.h>

#include "torch/device/byte_range.hpp"
#include "util/digest.hpp"

namespace spillway {

/// Computed by the calling thread.
inline std::int64_t host_digest(const c10::Storage& storage, ByteRange bytes) {
  Digest digest;
  digest.add(std::span(static_cast<const std::byte*>(storage.data()) + bytes.begin, bytes.size));
  return static_cast<std::int64_t>(digest.value());
}

}  // namespace spillway
