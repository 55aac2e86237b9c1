#include "spillway/memory/hole_index.hpp"

namespace spillway {
namespace {

/// Memory for tree nodes, which are all of one size: what is given back is used again at once, and
/// nothing returns to the heap before the end. Several times faster than the standard's pools.
class NodeMemory final : public std::pmr::memory_resource {
 private:
  struct Free {
    Free* next;
  };

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (bytes == size_ && free_ != nullptr) {
      Free* const node = free_;
      free_ = node->next;
      return node;
    }
    if (size_ == 0) size_ = bytes;
    return heap_.allocate(bytes, alignment);
  }

  void do_deallocate(void* memory, std::size_t bytes, std::size_t /*alignment*/) override {
    if (bytes == size_) free_ = new (memory) Free{free_};
  }

  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::pmr::monotonic_buffer_resource heap_{std::size_t{64} << 10U};
  std::size_t size_ = 0;
  Free* free_ = nullptr;
};

}  // namespace

HoleIndex::HoleIndex() : nodes_(std::make_unique<NodeMemory>()) {
  bins_.reserve(kBins);
  for (std::size_t i = 0; i < kBins; ++i) bins_.emplace_back(nodes_.get());
}

HoleIndex::~HoleIndex() = default;

std::size_t HoleIndex::bin_of(std::uint64_t size) noexcept {
  // The highest bit and the five below it.
  if (size < 32) return static_cast<std::size_t>(size);
  const std::uint64_t top = static_cast<std::uint64_t>(std::bit_width(size)) - 1;
  return (top - 4) * 32 + ((size >> (top - 5)) & 31U);
}

std::size_t HoleIndex::next_bin(std::size_t from) const noexcept {
  if (from >= kBins) return kBins;
  const std::size_t word = from / 64;
  if (const std::uint64_t rest = occupied_[word] >> (from % 64); rest != 0) {
    return from + static_cast<std::size_t>(std::countr_zero(rest));
  }
  const std::uint64_t words = word + 1 < kWords ? occupied_words_ >> (word + 1) : 0;
  if (words == 0) return kBins;
  const std::size_t next = word + 1 + static_cast<std::size_t>(std::countr_zero(words));
  return next * 64 + static_cast<std::size_t>(std::countr_zero(occupied_[next]));
}

HoleIndex::Entry HoleIndex::add(const Hole& hole) {
  const std::size_t bin = bin_of(hole.size);
  const Entry entry = bins_[bin].insert(hole).first;  // Before the rest, because it may fail.
  occupied_[bin / 64] |= std::uint64_t{1} << (bin % 64);
  occupied_words_ |= std::uint64_t{1} << (bin / 64);
  ++count_;
  return entry;
}

void HoleIndex::remove(Entry entry) {
  const std::size_t bin = bin_of(entry->size);
  bins_[bin].erase(entry);
  --count_;
  if (!bins_[bin].empty()) return;
  occupied_[bin / 64] &= ~(std::uint64_t{1} << (bin % 64));
  if (occupied_[bin / 64] == 0) occupied_words_ &= ~(std::uint64_t{1} << (bin / 64));
}

const Hole* HoleIndex::find(std::uint64_t size, std::uint64_t limit) const {
  for (std::size_t bin = next_bin(bin_of(size)); bin < kBins; bin = next_bin(bin + 1)) {
    // One step in all but the first bin; more only where a range became shorter.
    for (auto hole = bins_[bin].lower_bound({size, 0, 0}); hole != bins_[bin].end(); ++hole) {
      if (hole->offset + size <= limit) return &*hole;
    }
  }
  return nullptr;
}

}  // namespace spillway
