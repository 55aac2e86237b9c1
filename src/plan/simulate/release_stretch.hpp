/// The bytes of a stretch of a step, and how much must be released for it to stay within a budget.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace spillway {

/// Bytes over a stretch of a step, and what becomes of them as one thing after another is released.
class Stretch {
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

/// How many of what may be released must be, oldest first, so that a stretch stays within the
/// budget; as few as possible. Where that cannot be, those with which it comes nearest.
struct Releases {
  std::int64_t ledger = 0;                                         ///< Afterwards.
  std::int64_t before = std::numeric_limits<std::int64_t>::max();  ///< Before the last of them.
  std::int64_t most = 0;                                           ///< Bytes of the stretch then.
};

template <typename ForEach>
Releases releases_for(Stretch stretch, std::int64_t budget, std::int64_t ledger,
                      ForEach&& for_each) {
  Releases best{ledger, std::numeric_limits<std::int64_t>::max(), stretch.most()};
  if (best.most <= budget) return best;
  std::int64_t now = ledger;
  for_each([&](std::int64_t bytes, int from, int to) {
    stretch.take(bytes, from, to);
    const std::int64_t before = std::exchange(now, now - bytes);
    if (stretch.most() < best.most) best = {now, before, stretch.most()};
    return best.most > budget;
  });
  return best;
}

}  // namespace spillway
