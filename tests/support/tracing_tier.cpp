#include "support/tracing_tier.hpp"

#include <utility>

namespace spillway::testing {

TracingTier::TracingTier(Tier& inner, Observer observer)
    : inner_(&inner), observer_(std::move(observer)) {}

// The inner call is made under the lock too: otherwise two threads could be recorded in another
// order than the tier saw them, and a block could seem to be handed out twice.
std::optional<Block> TracingTier::take(Bytes size) {
  const std::lock_guard lock(mutex_);
  std::optional<Block> block = inner_->take(size);
  observer_({block ? TierEvent::Kind::kAllocate : TierEvent::Kind::kNoRoom, next_++, size,
             block ? block->data : nullptr});
  return block;
}

void TracingTier::put(Block block) noexcept {
  const std::lock_guard lock(mutex_);
  const TierEvent event{TierEvent::Kind::kFree, next_++, block.size, block.data};
  inner_->put(std::move(block));
  observer_(event);
}

}  // namespace spillway::testing
