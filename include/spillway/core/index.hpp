/// Ids of profiles and plans are ints; containers want std::size_t.
#pragma once

#include <cstddef>

namespace spillway {

/// Precondition: `id` is not negative.
[[nodiscard]] constexpr std::size_t to_index(int id) noexcept {
  return static_cast<std::size_t>(id);
}

}  // namespace spillway
