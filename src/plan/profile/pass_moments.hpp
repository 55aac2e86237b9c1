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

  // Untracked bytes at the borders of the pass, to subtract those of other passes in flight.
  // When its forward began.
  std::optional<std::int64_t> before_forward;
  // More than that when another pass began before its backward.
  std::optional<std::int64_t> left;
  // When its backward began, less `left`.
  std::int64_t before_backward = 0;
  // More than that when another pass followed.
  std::optional<std::int64_t> after;

  /// One more of its sites is saved; whether it is the first.
  bool saved(int buffer) {
    if (sites.size() <= static_cast<std::size_t>(buffer)) {
      sites.resize(static_cast<std::size_t>(buffer) + 1);
    }
    return sites[static_cast<std::size_t>(buffer)]++ == 0;
  }
  /// One of its sites is dropped; whether it was the last.
  bool gone(int buffer) { return --sites[static_cast<std::size_t>(buffer)] == 0; }
};

/// The moments; changes between the last of them and the end count for the last, so that the end
/// has the remaining bytes.
[[nodiscard]] std::vector<Moment> recorded_moments(const PassMoments& pass);

/// The same with the bytes of the pass alone: without those of other passes in flight when its
/// forward or its backward began.
[[nodiscard]] std::vector<Moment> own_moments(const PassMoments& pass);

}  // namespace spillway
