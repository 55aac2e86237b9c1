/// Hands out parts of a range of numbers; knows nothing of memory. Best fit (the lowest of equal
/// ones), exact sizes (rounded up to 512 bytes), free neighbours joined at once. Every operation is
/// O(log holes).
///
/// Each part that is freed keeps the events of its last users, and gives them to whoever is handed
/// any of it: exactly those of the parts that the new one covers.
///
/// What it hands out depends only on the sequence of calls. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/memory/event_list.hpp"
#include "spillway/memory/hole_index.hpp"

namespace spillway {

inline constexpr Bytes kBlockAlignment{512};

/// A part of the range: [offset, offset + size).
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint32_t node = 0;  ///< For the allocator, which finds the neighbours by it.

  [[nodiscard]] std::uint64_t end() const noexcept { return offset + size; }
  friend bool operator==(const Extent& a, const Extent& b) noexcept {
    return a.offset == b.offset && a.size == b.size;
  }
};

class OffsetAllocator {
 public:
  /// `capacity` is rounded up to a unit of 512 bytes.
  explicit OffsetAllocator(Bytes capacity);

  /// The smallest hole that fits, or the free end of the range; nothing if there is no room. A size
  /// of zero takes one unit, so that every extent has an offset of its own. The events of the parts
  /// it covers are added to `pending`, if one is given, and are forgotten here.
  [[nodiscard]] std::optional<Extent> allocate(Bytes size, EventList* pending = nullptr);

  /// Precondition: `extent` came from allocate() and was not freed since.
  /// Errors: std::bad_alloc; the extent is still in use then.
  void free(const Extent& extent, EventList last_users = {});

  /// Moves the end of the range, at most to where it was at first. Extents beyond a nearer end stay
  /// valid; nothing new is handed out there.
  void set_capacity(Bytes capacity) noexcept;

  /// Of those who used anything beyond `offset` last, where nothing is in use now.
  /// Precondition: `offset` is not below the frontier.
  [[nodiscard]] EventList last_users_beyond(Bytes offset) const;

  /// How far extents reached since the last call, at least to the frontier.
  Bytes take_reach() noexcept;

  [[nodiscard]] Bytes capacity() const noexcept { return Bytes(capacity_); }
  [[nodiscard]] Bytes used() const noexcept { return Bytes(used_); }
  /// The end of the highest extent in use now.
  [[nodiscard]] Bytes frontier() const noexcept { return Bytes(nodes_[end_].offset); }
  /// The highest frontier ever: how much of the range has been touched.
  [[nodiscard]] Bytes footprint() const noexcept { return Bytes(footprint_); }
  /// Free parts below the frontier. None, with nothing used, means all is one block again.
  [[nodiscard]] std::size_t holes() const noexcept { return holes_.size(); }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  /// A part in the order of addresses, in use or free. The last one is the free end of the range.
  struct Node {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    std::uint32_t before = kNone;
    std::uint32_t after = kNone;
    bool free = false;
    HoleIndex::Entry hole{};            // Of a free part that is not the end.
    std::uint32_t first_stamp = kNone;  // A free part's stamps, in the order of addresses.
    std::uint32_t last_stamp = kNone;
  };
  /// Up to `end`, from where the stamp before ends: who used this part last.
  struct Stamp {
    std::uint64_t end = 0;
    std::uint32_t next = kNone;
    EventList events;
  };

  void reserve_for_free();
  [[nodiscard]] std::uint32_t new_node();
  void join_with_next(std::uint32_t node);
  [[nodiscard]] std::uint32_t cut_front(std::uint32_t node, std::uint64_t size);
  void add_stamp(Node& node, std::uint64_t end, EventList events);
  void take_stamps(Node& node, std::uint64_t end, EventList* pending);

  HoleIndex holes_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> idle_nodes_;
  std::vector<Stamp> stamps_;
  std::vector<std::uint32_t> idle_stamps_;
  std::uint32_t end_ = 0;  // The node that is the free end of the range.
  std::uint64_t most_;     // The capacity at first.
  std::uint64_t capacity_;
  std::uint64_t footprint_ = 0;
  std::uint64_t reach_ = 0;
  std::uint64_t used_ = 0;
};

}  // namespace spillway
