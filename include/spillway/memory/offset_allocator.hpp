/// Hands out parts of a range of numbers; knows nothing of memory. Best fit, exact sizes (rounded up
/// to 512 bytes), free neighbours joined at once; every operation is O(log holes).
///
/// What it hands out depends only on the sequence of calls. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <set>
#include <utility>

#include "spillway/core/bytes.hpp"

namespace spillway {

inline constexpr Bytes kBlockAlignment{512};

/// A part of the range: [offset, offset + size).
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;

  [[nodiscard]] std::uint64_t end() const noexcept { return offset + size; }
  friend bool operator==(const Extent&, const Extent&) = default;
};

class OffsetAllocator {
 public:
  /// `capacity` is rounded up to a unit of 512 bytes.
  explicit OffsetAllocator(Bytes capacity);

  /// The smallest hole that fits, or the free end of the range; nothing if there is no room. A size
  /// of zero takes one unit, so that every extent has an offset of its own.
  [[nodiscard]] std::optional<Extent> allocate(Bytes size);

  /// Precondition: `extent` came from allocate() and was not freed since.
  void free(Extent extent);

  /// Makes the range shorter. Extents beyond the new end stay valid; nothing new is handed out there.
  void shrink(Bytes capacity) noexcept;

  [[nodiscard]] Bytes capacity() const noexcept { return Bytes(capacity_); }
  [[nodiscard]] Bytes used() const noexcept { return Bytes(used_); }
  /// The end of the highest extent in use now.
  [[nodiscard]] Bytes frontier() const noexcept { return Bytes(frontier_); }
  /// The highest frontier ever: how much of the range has been touched.
  [[nodiscard]] Bytes footprint() const noexcept { return Bytes(footprint_); }
  /// Free parts below the frontier. None, with nothing used, means all is one block again.
  [[nodiscard]] std::size_t holes() const noexcept { return by_offset_.size(); }

 private:
  [[nodiscard]] std::optional<Extent> take_hole(std::uint64_t size);
  void add_hole(Extent extent);

  using ByOffset = std::pmr::map<std::uint64_t, std::uint64_t>;              // offset -> size
  using BySize = std::pmr::set<std::pair<std::uint64_t, std::uint64_t>>;     // (size, offset)

  // Nodes come from this pool: after the first steps no call reaches the heap.
  std::unique_ptr<std::pmr::memory_resource> pool_;
  ByOffset by_offset_;
  BySize by_size_;
  std::uint64_t capacity_;
  std::uint64_t frontier_ = 0;
  std::uint64_t footprint_ = 0;
  std::uint64_t used_ = 0;
};

}  // namespace spillway
