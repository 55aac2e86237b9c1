/// Storage for bytes that were offloaded from the device. Tiers compose: LimitedTier and
/// CountingTier wrap any tier and are tiers themselves.
///
/// Threads: all calls may come from any thread. Lifetime: a tier outlives its leases; a wrapper
/// does not own what it wraps.
/// To add a tier: derive, implement the four pure functions, and add it to
/// tests/conformance/tier_conformance.
#pragma once

#include <optional>
#include <string>

#include "spillway/core/bytes.hpp"
#include "spillway/memory/lease.hpp"

namespace spillway {

class Tier : public LeaseHome {
 public:
  Tier() = default;
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;
  virtual ~Tier() = default;

  /// A block of `size` bytes, aligned to 512; nothing when there is no room, which is an answer and
  /// not an error. May be called in the middle of a step.
  [[nodiscard]] std::optional<Lease> allocate(Bytes size) {
    if (std::optional<Block> block = take(size)) return Lease(*this, std::move(*block));
    return std::nullopt;
  }

  /// Checks before a step whether one buffer of `size` bytes could ever be stored.
  /// Errors: OutOfMemory with what is there and what to change.
  void require_room_for(Bytes size) const;

  [[nodiscard]] virtual std::string name() const = 0;
  /// The capacity of this tier.
  [[nodiscard]] virtual Bytes capacity() const = 0;

  /// For wrappers; everyone else uses allocate(). What take() gave goes back through put().
  [[nodiscard]] virtual std::optional<Block> take(Bytes size) = 0;
  void put(Block block) noexcept override = 0;
};

}  // namespace spillway
