/// Tells an observer about every call that reaches a tier, in the order they happened.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

#include "spillway/memory/tier.hpp"

namespace spillway::testing {

struct TierEvent {
  enum class Kind { kAllocate, kNoRoom, kFree };

  Kind kind = Kind::kAllocate;
  std::uint64_t sequence = 0;  ///< 0, 1, 2, ... without gaps.
  Bytes size;
  const std::byte* data = nullptr;  ///< Null for kNoRoom.
};

class TracingTier final : public Tier {
 public:
  /// Called under a lock, one event at a time, on the thread of the call that caused it. Must not
  /// throw and must not call into this tier.
  using Observer = std::function<void(const TierEvent&)>;

  /// Does not own `inner`, which must outlive this.
  TracingTier(Tier& inner, Observer observer);

  [[nodiscard]] std::string name() const override { return inner_->name(); }
  [[nodiscard]] Bytes capacity() const override { return inner_->capacity(); }
  [[nodiscard]] std::optional<Block> take(Bytes size) override;
  void put(Block block) noexcept override;

 private:
  Tier* inner_;
  Observer observer_;
  std::mutex mutex_;
  std::uint64_t next_ = 0;
};

}  // namespace spillway::testing
