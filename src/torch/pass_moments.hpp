/// The moments of one pass; internal.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "spillway/plan/profile.hpp"

namespace spillway {

struct PassMoments {
  std::vector<Moment> list;
  std::vector<int> sites;  // By buffer: how many of its sites autograd still has.
  bool backward = false;
  bool in_order = true;  // Nothing of its forward came after its backward had begun.
  std::optional<std::int64_t> tail_bytes;  // Seen since the last moment, before another pass's.

  /// One more of its sites is saved; whether it is the first.
  bool saved(int buffer) {
    if (sites.size() <= static_cast<std::size_t>(buffer)) {
      sites.resize(static_cast<std::size_t>(buffer) + 1);
    }
    return sites[static_cast<std::size_t>(buffer)]++ == 0;
  }
  /// ... is gone; whether it was the last.
  bool gone(int buffer) { return --sites[static_cast<std::size_t>(buffer)] == 0; }
};

}  // namespace spillway
