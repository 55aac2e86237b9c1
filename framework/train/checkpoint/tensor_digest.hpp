/// The digest of one parameter.
#pragma once

#include <cstdint>

#include "train/checkpoint/digest.hpp"
#include "train/model/named_tensor.hpp"

namespace spillway::app {

/// Of name, type, shape and bytes; the device does not matter. Waits for it.
[[nodiscard]] NamedDigest tensor_digest(const NamedTensor& tensor);

}  // namespace spillway::app
