#include "spillway/memory/offset_allocator.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace spillway {

OffsetAllocator::OffsetAllocator(Bytes capacity)
    : most_(round_up(capacity, kBlockAlignment).count()), capacity_(most_) {
  Node& end = nodes_.emplace_back();
  end.free = true;
  end.size = std::numeric_limits<std::uint64_t>::max();  // Its limit is the capacity.
}

std::optional<Extent> OffsetAllocator::allocate(Bytes size, EventList* pending) {
  if (size.count() > capacity_) return std::nullopt;
  const std::uint64_t wanted = round_up(std::max(size, Bytes(1)), kBlockAlignment).count();
  std::uint32_t node = end_;
  if (const Hole* const hole = holes_.find(wanted, capacity_)) {
    node = hole->node;
    holes_.remove(nodes_[node].hole);
  } else if (nodes_[end_].offset > capacity_ || wanted > capacity_ - nodes_[end_].offset) {
    return std::nullopt;
  }
  take_stamps(nodes_[node], nodes_[node].offset + wanted, pending);
  if (nodes_[node].size > wanted) node = cut_front(node, wanted);
  nodes_[node].free = false;
  footprint_ = std::max(footprint_, nodes_[end_].offset);
  reach_ = std::max(reach_, nodes_[end_].offset);
  used_ += wanted;
  return Extent{nodes_[node].offset, wanted, node};
}

void OffsetAllocator::free(const Extent& extent, EventList last_users) {
  std::uint32_t node = extent.node;
  const std::uint32_t after = nodes_[node].after;
  const std::uint32_t before = nodes_[node].before;
  const bool joins_after = nodes_[after].free;
  const bool joins_before = before != kNone && nodes_[before].free;
  const bool at_end = joins_after && after == end_;
  // What may fail comes first.
  reserve_for_free();
  HoleIndex::Entry hole{};
  if (!at_end) {
    Hole joined{extent.size, extent.offset, node};
    if (joins_after) joined.size += nodes_[after].size;
    if (joins_before) joined = {joined.size + nodes_[before].size, nodes_[before].offset, before};
    hole = holes_.add(joined);
  }
  used_ -= extent.size;
  nodes_[node].free = true;
  add_stamp(nodes_[node], extent.end(), std::move(last_users));
  if (joins_after) {
    if (!at_end) holes_.remove(nodes_[after].hole);
    join_with_next(node);
  }
  if (joins_before) {
    holes_.remove(nodes_[before].hole);
    join_with_next(before);
    node = before;
  }
  if (!at_end) nodes_[node].hole = hole;
}

void OffsetAllocator::reserve_for_free() {
  constexpr std::size_t kMore = 16;
  if (idle_stamps_.empty() && stamps_.size() == stamps_.capacity()) {
    stamps_.reserve(2 * stamps_.size() + kMore);
  }
  if (idle_nodes_.capacity() < nodes_.size()) idle_nodes_.reserve(nodes_.capacity());
}

/// The front of a free part becomes a part of its own; the rest stays where its stamps are.
std::uint32_t OffsetAllocator::cut_front(std::uint32_t node, std::uint64_t size) {
  const std::uint32_t front = new_node();
  Node& rest = nodes_[node];
  Node& cut = nodes_[front];
  cut.offset = rest.offset;
  cut.size = size;
  cut.before = rest.before;
  cut.after = node;
  if (rest.before != kNone) nodes_[rest.before].after = front;
  rest.before = front;
  rest.offset += size;
  if (node != end_) {
    rest.size -= size;
    rest.hole = holes_.add({rest.size, rest.offset, node});
  }
  return front;
}

/// Both are free and in no index; `node` becomes the two of them.
void OffsetAllocator::join_with_next(std::uint32_t node) {
  const std::uint32_t after = nodes_[node].after;
  Node& left = nodes_[node];
  const Node right = nodes_[after];
  if (left.last_stamp == kNone) {
    left.first_stamp = right.first_stamp;
  } else {
    stamps_[left.last_stamp].next = right.first_stamp;
  }
  if (right.last_stamp != kNone) left.last_stamp = right.last_stamp;
  left.after = right.after;
  if (right.after != kNone) nodes_[right.after].before = node;
  if (after == end_) {
    end_ = node;
    left.size = right.size;
  } else {
    left.size += right.size;
  }
  idle_nodes_.push_back(after);
}

std::uint32_t OffsetAllocator::new_node() {
  if (idle_nodes_.empty()) {
    nodes_.emplace_back();
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }
  const std::uint32_t node = idle_nodes_.back();
  idle_nodes_.pop_back();
  nodes_[node] = Node{};
  return node;
}

void OffsetAllocator::add_stamp(Node& node, std::uint64_t end, EventList events) {
  std::uint32_t stamp = 0;
  if (idle_stamps_.empty()) {
    stamp = static_cast<std::uint32_t>(stamps_.size());
    stamps_.emplace_back();
  } else {
    stamp = idle_stamps_.back();
    idle_stamps_.pop_back();
  }
  stamps_[stamp].end = end;
  stamps_[stamp].next = kNone;
  stamps_[stamp].events = std::move(events);
  node.first_stamp = stamp;
  node.last_stamp = stamp;
}

void OffsetAllocator::take_stamps(Node& node, std::uint64_t end, EventList* pending) {
  std::uint64_t begin = node.offset;
  while (node.first_stamp != kNone && begin < end) {
    Stamp& stamp = stamps_[node.first_stamp];
    const bool whole = stamp.end <= end;
    if (pending != nullptr) {
      if (whole && pending->empty()) {
        pending->swap(stamp.events);
      } else {
        for (const EventRef& event : stamp.events) add_event(*pending, event);
      }
    }
    begin = stamp.end;
    if (!whole) return;  // The rest of it stays, with its events.
    stamp.events.clear();
    idle_stamps_.push_back(node.first_stamp);
    node.first_stamp = stamp.next;
    if (node.first_stamp == kNone) node.last_stamp = kNone;
  }
}

void OffsetAllocator::set_capacity(Bytes capacity) noexcept {
  capacity_ = std::min(most_, round_up(capacity, kBlockAlignment).count());
}

EventList OffsetAllocator::last_users_beyond(Bytes offset) const {
  EventList users;
  for (std::uint32_t stamp = nodes_[end_].first_stamp; stamp != kNone;
       stamp = stamps_[stamp].next) {
    if (stamps_[stamp].end <= offset.count()) continue;
    for (const EventRef& event : stamps_[stamp].events) add_event(users, event);
  }
  return users;
}

Bytes OffsetAllocator::take_reach() noexcept {
  return Bytes(std::exchange(reach_, nodes_[end_].offset));
}

}  // namespace spillway
