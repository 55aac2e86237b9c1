/// Host memory as a tier: a slab.
#pragma once

#include "spillway/memory/slab.hpp"
#include "spillway/memory/tier.hpp"

namespace spillway {

class HostTier final : public Tier {
 public:
  /// Does not own `slab`, which must outlive this.
  explicit HostTier(Slab& slab) noexcept : slab_(&slab) {}

  [[nodiscard]] std::string name() const override { return "host tier"; }
  [[nodiscard]] Bytes capacity() const override { return slab_->usage().capacity; }
  [[nodiscard]] std::optional<Block> take(Bytes size) override { return slab_->take(size); }
  void put(Block block) noexcept override { slab_->put(std::move(block)); }

 private:
  Slab* slab_;
};

}  // namespace spillway
