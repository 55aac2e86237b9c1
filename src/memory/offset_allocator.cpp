#include "spillway/memory/offset_allocator.hpp"

#include <algorithm>
#include <iterator>
#include <memory>

namespace spillway {

OffsetAllocator::OffsetAllocator(Bytes capacity)
    : pool_(std::make_unique<std::pmr::unsynchronized_pool_resource>()),
      by_offset_(pool_.get()),
      by_size_(pool_.get()),
      capacity_(round_up(capacity, kBlockAlignment).count()) {}

std::optional<Extent> OffsetAllocator::allocate(Bytes size) {
  if (size.count() > capacity_) return std::nullopt;
  const std::uint64_t wanted =
      round_up(std::max(size, Bytes(1)), kBlockAlignment).count();
  std::optional<Extent> extent = take_hole(wanted);
  if (!extent) {
    if (frontier_ > capacity_ || wanted > capacity_ - frontier_) return std::nullopt;
    extent = Extent{frontier_, wanted};
    frontier_ += wanted;
    footprint_ = std::max(footprint_, frontier_);
  }
  used_ += wanted;
  return extent;
}

std::optional<Extent> OffsetAllocator::take_hole(std::uint64_t size) {
  auto best = by_size_.lower_bound({size, 0});
  while (best != by_size_.end() && best->second + size > capacity_) ++best;  // Only after shrink().
  if (best == by_size_.end()) return std::nullopt;
  const auto [hole_size, offset] = *best;
  auto node = by_size_.extract(best);
  const auto hole = by_offset_.find(offset);
  if (hole_size == size) {
    by_offset_.erase(hole);
    return Extent{offset, size};
  }
  // The front is handed out; the nodes of both trees are used again for what remains.
  auto place = by_offset_.extract(hole);
  place.key() = offset + size;
  place.mapped() = hole_size - size;
  by_offset_.insert(std::move(place));
  node.value() = {hole_size - size, offset + size};
  by_size_.insert(std::move(node));
  return Extent{offset, size};
}

void OffsetAllocator::free(Extent extent) {
  used_ -= extent.size;
  const auto next = by_offset_.lower_bound(extent.offset);
  if (next != by_offset_.end() && next->first == extent.end()) {
    extent.size += next->second;
    by_size_.erase({next->second, next->first});
    by_offset_.erase(next);
  }
  const auto after = by_offset_.lower_bound(extent.offset);
  if (after != by_offset_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == extent.offset) {
      extent = {before->first, before->second + extent.size};
      by_size_.erase({before->second, before->first});
      by_offset_.erase(before);
    }
  }
  if (extent.end() == frontier_) {
    frontier_ = extent.offset;
  } else {
    add_hole(extent);
  }
}

void OffsetAllocator::add_hole(Extent extent) {
  by_offset_.emplace(extent.offset, extent.size);
  by_size_.emplace(extent.size, extent.offset);
}

void OffsetAllocator::shrink(Bytes capacity) noexcept {
  capacity_ = std::min(capacity_, round_up(capacity, kBlockAlignment).count());
}

}  // namespace spillway
