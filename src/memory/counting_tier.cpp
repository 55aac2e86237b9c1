#include "spillway/memory/counting_tier.hpp"

#include <algorithm>
#include <utility>

namespace spillway {

TierCounts CountingTier::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::optional<Block> CountingTier::take(Bytes size) {
  std::optional<Block> block = inner_->take(size);
  const std::lock_guard lock(mutex_);
  if (!block) {
    ++counts_.failures;
    return block;
  }
  ++counts_.allocations;
  ++counts_.leases;
  counts_.current += size;
  counts_.peak = std::max(counts_.peak, counts_.current);
  return block;
}

void CountingTier::put(Block block) noexcept {
  const Bytes size = block.size;
  inner_->put(std::move(block));
  const std::lock_guard lock(mutex_);
  --counts_.leases;
  counts_.current -= size;
}

}  // namespace spillway
