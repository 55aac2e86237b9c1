/// The free parts of a range, by size: finds the smallest one that fits. Sizes are sorted into bins
/// of 3 % width whose occupancy is kept in bitmaps, and each bin is a small tree; so finding a bin
/// costs a few instructions, and a tree has few nodes unless many holes are of like size.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <set>
#include <vector>

namespace spillway {

struct Hole {
  std::uint64_t size = 0;
  std::uint64_t offset = 0;
  std::uint32_t node = 0;

  friend bool operator<(const Hole& a, const Hole& b) noexcept {
    return a.size != b.size ? a.size < b.size : a.offset < b.offset;
  }
};

class HoleIndex {
  using Bin = std::pmr::set<Hole>;

 public:
  /// A hole's entry in the index, until it is removed.
  using Entry = Bin::const_iterator;

  HoleIndex();
  HoleIndex(HoleIndex&&) noexcept = default;
  HoleIndex& operator=(HoleIndex&&) = delete;
  ~HoleIndex();

  Entry add(const Hole& hole);
  /// Precondition: add() returned the entry, and it was not removed since.
  void remove(Entry entry);
  /// The smallest hole of at least `size` of which `size` bytes lie before `limit`, the lowest of
  /// equal ones; null if there is none. Valid until the hole is removed.
  [[nodiscard]] const Hole* find(std::uint64_t size, std::uint64_t limit) const;
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

 private:
  static constexpr std::size_t kBins = std::size_t{64} * 32;
  static constexpr std::size_t kWords = kBins / 64;

  [[nodiscard]] static std::size_t bin_of(std::uint64_t size) noexcept;
  [[nodiscard]] std::size_t next_bin(std::size_t from) const noexcept;

  std::unique_ptr<std::pmr::memory_resource> nodes_;
  std::vector<Bin> bins_;
  std::array<std::uint64_t, kWords> occupied_{};
  std::uint64_t occupied_words_ = 0;
  std::size_t count_ = 0;
};

}  // namespace spillway
