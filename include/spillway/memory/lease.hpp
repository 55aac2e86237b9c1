/// Ownership of a block of a tier, and the contract for its return.
///
/// A block is returned *with an event*: the point after which its last user no longer needs it. The
/// tier may hand the block out again at once, together with that event; the next writer makes its
/// own stream wait for it. Nothing polls, the host never waits, and the addresses depend only on
/// the order of calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/core/event.hpp"
#include "spillway/core/stream.hpp"
#include "spillway/memory/event_list.hpp"

namespace spillway {

/// A block as tiers and their wrappers pass it on. A value without an owner: see Lease.
struct Block {
  std::byte* data = nullptr;
  Bytes size;
  std::uint32_t node = 0;  ///< For the slab.
  /// The range of host memory that one copy may not cross: chunk k begins at `chunks + k * chunk`.
  std::byte* chunks = nullptr;
  Bytes chunk;
  /// What the next writer has to wait for.
  EventList pending;
};

/// Where leases go back to. Called from any thread, also from destructors.
class LeaseHome {
 public:
  virtual void put(Block block) noexcept = 0;

 protected:
  ~LeaseHome() = default;
};

/// Owns a block until it is retired or destroyed. Move-only. Must not outlive its tier.
/// Threads: one at a time.
class Lease {
 public:
  Lease() noexcept = default;
  Lease(LeaseHome& home, Block block) noexcept : home_(&home), block_(std::move(block)) {}
  Lease(Lease&& other) noexcept { swap(other); }
  Lease& operator=(Lease&& other) noexcept {
    Lease(std::move(other)).swap(*this);
    return *this;
  }
  /// Returns the block unused. Precondition: nothing was queued on it since.
  ~Lease() {
    if (home_ != nullptr) home_->put(std::move(block_));
  }

  explicit operator bool() const noexcept { return home_ != nullptr; }
  [[nodiscard]] std::byte* data() const noexcept { return block_.data; }
  [[nodiscard]] Bytes size() const noexcept { return block_.size; }
  [[nodiscard]] std::span<std::byte> span() const noexcept {
    return {block_.data, block_.size.count()};
  }
  [[nodiscard]] const EventList& pending() const noexcept { return block_.pending; }

  /// Makes `writer` wait for everyone who used this block before. Call before the first write.
  void acquire(Stream& writer) {
    for (const EventRef& event : block_.pending) writer.wait(*event);
    block_.pending.clear();
  }

  /// Returns the block. `last_use` is the point after which nothing queued uses it any more.
  void retire(EventRef last_use) noexcept {
    add_event(block_.pending, std::move(last_use));
    Lease(std::move(*this));
  }

  /// Never returns the block: for a device that failed with work queued on the block.
  void abandon() noexcept { home_ = nullptr; }

  /// Calls `copy_piece(host pointer, offset in the block, size)` for each part that one copy may
  /// take: parts end where separately registered chunks meet, which no CUDA copy may cross.
  template <typename F>
  void for_each_piece(F&& copy_piece) const {
    std::uint64_t done = 0;
    while (done < block_.size.count()) {
      std::uint64_t size = block_.size.count() - done;
      if (block_.chunk > Bytes(0)) {
        const auto from_start = static_cast<std::uint64_t>(block_.data + done - block_.chunks);
        size = std::min(size, block_.chunk.count() - from_start % block_.chunk.count());
      }
      copy_piece(block_.data + done, done, Bytes(size));
      done += size;
    }
  }

  void swap(Lease& other) noexcept {
    std::swap(home_, other.home_);
    std::swap(block_, other.block_);
  }

 private:
  LeaseHome* home_ = nullptr;
  Block block_;
};

}  // namespace spillway
