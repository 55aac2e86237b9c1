/// Counts what goes through a tier.
#pragma once

#include <cstdint>
#include <mutex>

#include "spillway/memory/tier.hpp"

namespace spillway {

struct TierCounts {
  Bytes current;                  ///< In leases now.
  Bytes peak;                     ///< The most ever in leases at once.
  std::uint64_t leases = 0;       ///< Leases now.
  std::uint64_t allocations = 0;  ///< Successful ones, ever.
  std::uint64_t failures = 0;     ///< Times there was no room, ever.
};

class CountingTier final : public Tier {
 public:
  /// Does not own `inner`, which must outlive this.
  explicit CountingTier(Tier& inner) noexcept : inner_(&inner) {}

  [[nodiscard]] TierCounts counts() const;

  [[nodiscard]] std::string name() const override { return inner_->name(); }
  [[nodiscard]] Bytes capacity() const override { return inner_->capacity(); }
  [[nodiscard]] std::optional<Block> take(Bytes size) override;
  void put(Block block) noexcept override;

 private:
  Tier* inner_;
  mutable std::mutex mutex_;
  TierCounts counts_;
};

}  // namespace spillway
