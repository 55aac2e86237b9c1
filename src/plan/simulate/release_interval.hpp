/// Bytes in an interval of a step, and how much must be released for it to stay within a budget.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace spillway {

/// Bytes over an interval of a step, and what becomes of them as one item after another is freed.
class StepInterval {
 public:
  void add(int moment, std::int64_t bytes) {
    moments_.push_back(moment);
    bytes_.push_back(bytes);
    most_ = std::max(most_, bytes);
  }

  /// Takes `bytes` away after moment `from`, up to moment `to`.
  void take(std::int64_t bytes, int from, int to) {
    most_ = std::numeric_limits<std::int64_t>::min();
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (moments_[i] > from && moments_[i] <= to) bytes_[i] -= bytes;
      most_ = std::max(most_, bytes_[i]);
    }
  }

  [[nodiscard]] std::int64_t most() const noexcept { return most_; }

 private:
  std::vector<int> moments_;
  std::vector<std::int64_t> bytes_;
  std::int64_t most_ = std::numeric_limits<std::int64_t>::min();
};

/// How many of what may be released must be, oldest first, so that an interval stays within the
/// budget; as few as possible. Where that cannot be, those with which it comes nearest.
struct Releases {
  std::int64_t managed_bytes = 0;                                  ///< Afterwards.
  std::int64_t before = std::numeric_limits<std::int64_t>::max();  ///< Before the last of them.
  std::int64_t most = 0;                                           ///< Bytes of the interval then.
};

template <typename ForEach>
Releases releases_for(StepInterval interval, std::int64_t budget, std::int64_t managed_bytes,
                      ForEach&& for_each) {
  Releases best{managed_bytes, std::numeric_limits<std::int64_t>::max(), interval.most()};
  if (best.most <= budget) return best;
  std::int64_t now = managed_bytes;
  for_each([&](std::int64_t bytes, int from, int to) {
    interval.take(bytes, from, to);
    const std::int64_t before = std::exchange(now, now - bytes);
    if (interval.most() < best.most) best = {now, before, interval.most()};
    return best.most > budget;
  });
  return best;
}

}  // namespace spillway
