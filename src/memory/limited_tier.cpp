#include "spillway/memory/limited_tier.hpp"

#include <algorithm>
#include <utility>

#include "spillway/core/error.hpp"

namespace spillway {

LimitedTier::LimitedTier(Tier& inner, Bytes limit) : inner_(&inner), limit_(limit) {
  if (limit == Bytes(0)) {
    throw InvalidArgument("limited tier",
                          "a limit of 0 bytes was given for the " + inner.name() +
                              "; give at least one byte, or leave the tier out to keep everything");
  }
}

Bytes LimitedTier::capacity() const { return std::min(limit_, inner_->capacity()); }

std::optional<Block> LimitedTier::take(Bytes size) {
  {
    const std::lock_guard lock(mutex_);
    if (size > limit_ - used_) return std::nullopt;
    used_ += size;
  }
  std::optional<Block> block = inner_->take(size);
  if (!block) {
    const std::lock_guard lock(mutex_);
    used_ -= size;
  }
  return block;
}

void LimitedTier::put(Block block) noexcept {
  const Bytes size = block.size;
  inner_->put(std::move(block));
  const std::lock_guard lock(mutex_);
  used_ -= size;
}

}  // namespace spillway
