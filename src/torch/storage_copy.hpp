/// Copies of storages; internal.
#pragma once

#include <c10/core/Storage.h>

namespace spillway {

/// The same bytes in memory of their own, copied on the current stream.
[[nodiscard]] c10::Storage copy_of(const c10::Storage& storage);

}  // namespace spillway
