/// A tier with a byte limit of its own, such as one session's share of a common slab.
#pragma once

#include <mutex>

#include "spillway/memory/tier.hpp"

namespace spillway {

class LimitedTier final : public Tier {
 public:
  /// Does not own `inner`, which must outlive this.
  /// Errors: InvalidArgument for a limit of zero.
  LimitedTier(Tier& inner, Bytes limit);

  [[nodiscard]] std::string name() const override { return inner_->name(); }
  [[nodiscard]] Bytes capacity() const override;
  [[nodiscard]] std::optional<Block> take(Bytes size) override;
  void put(Block block) noexcept override;

 private:
  Tier* inner_;
  Bytes limit_;
  std::mutex mutex_;
  Bytes used_;
};

}  // namespace spillway
