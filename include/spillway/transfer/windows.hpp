/// The two byte windows of a step, as bookkeeping only: what to release next in the forward pass,
/// what to reload next in the backward pass. They know neither streams nor memory; the caller acts
/// on their answers, so a step's sequence of actions follows from the sequence of calls.
///
/// Both may hold buffers of several passes at once: the order of push() and append() is the order
/// of the schedule. Threads: one at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "spillway/core/bytes.hpp"

namespace spillway {

/// Buffers whose copy out is under way and whose source still stands on the device. Sources are
/// released oldest first and as late as the limit allows, so that the wait for the copy is normally
/// over before it begins.
template <typename Item>
class OffloadWindow {
 public:
  /// A limit of zero releases every buffer at once.
  explicit OffloadWindow(Bytes limit) : limit_(limit) {}

  void push(Item item, Bytes size) {
    items_.emplace_back(std::move(item), size);
    pending_ += size;
  }

  /// The oldest buffer if the window has more than its limit. Call until it returns nothing.
  [[nodiscard]] std::optional<Item> pop_overdue() {
    if (pending_ <= limit_) return std::nullopt;
    return pop_oldest();
  }

  /// The oldest buffer, whatever the limit: for the end of a forward pass that must release
  /// everything.
  [[nodiscard]] std::optional<Item> pop_oldest() {
    if (items_.empty()) return std::nullopt;
    Item item = std::move(items_.front().first);
    pending_ -= items_.front().second;
    items_.pop_front();
    return item;
  }

  /// Takes out the first buffer for which `matches` holds: backward needs it and it is still on the
  /// device. Searches from the newest, which backward needs first.
  template <typename Predicate>
  [[nodiscard]] std::optional<Item> take(Predicate&& matches) {
    for (std::size_t i = items_.size(); i-- > 0;) {
      if (!matches(items_[i].first)) continue;
      Item item = std::move(items_[i].first);
      pending_ -= items_[i].second;
      items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(i));
      return item;
    }
    return std::nullopt;
  }

  /// Oldest first.
  template <typename F>
  void for_each(F&& look) const {
    for (const auto& [item, size] : items_) look(item);
  }

  [[nodiscard]] Bytes limit() const noexcept { return limit_; }
  /// Of what is pushed or asked for from now on.
  void set_limit(Bytes limit) noexcept { limit_ = limit; }
  [[nodiscard]] Bytes pending() const noexcept { return pending_; }
  [[nodiscard]] std::size_t size() const noexcept { return items_.size(); }

 private:
  Bytes limit_;
  Bytes pending_;
  std::deque<std::pair<Item, Bytes>> items_;
};

/// Buffers in the order in which backward will need them. At most the limit is prefetched.
template <typename Item>
class ReloadWindow {
 public:
  /// At least one buffer is always under way, whatever the limit: a buffer larger than the window
  /// must be reloaded too.
  explicit ReloadWindow(Bytes limit) : limit_(limit) {}

  void append(Item item, Bytes size) { waiting_.emplace_back(std::move(item), size); }

  /// The next buffer to start reloading now, if the window has room for it. Call until it
  /// returns nothing.
  [[nodiscard]] std::optional<Item> next() {
    if (waiting_.empty()) return std::nullopt;
    const Bytes size = waiting_.front().second;
    if (prefetched_ > Bytes(0) && prefetched_ + size > limit_) return std::nullopt;
    Item item = std::move(waiting_.front().first);
    waiting_.pop_front();
    prefetched_ += size;
    return item;
  }

  /// The same if it has at most `room` bytes besides.
  [[nodiscard]] std::optional<Item> next_of(Bytes room) {
    if (waiting_.empty() || waiting_.front().second > room) return std::nullopt;
    return next();
  }

  /// The same, whatever the limit: for a caller that counts himself.
  [[nodiscard]] std::optional<Item> next_within(Bytes room) {
    if (waiting_.empty() || waiting_.front().second > room) return std::nullopt;
    Item item = std::move(waiting_.front().first);
    prefetched_ += waiting_.front().second;
    waiting_.pop_front();
    return item;
  }

  /// A buffer given out was used for the last time and is gone from the device.
  void finished(Bytes size) noexcept { prefetched_ -= size; }

  [[nodiscard]] Bytes limit() const noexcept { return limit_; }
  /// Of what is pushed or asked for from now on.
  void set_limit(Bytes limit) noexcept { limit_ = limit; }
  [[nodiscard]] Bytes prefetched() const noexcept { return prefetched_; }
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }

 private:
  Bytes limit_;
  Bytes prefetched_;
  std::deque<std::pair<Item, Bytes>> waiting_;
};

}  // namespace spillway
