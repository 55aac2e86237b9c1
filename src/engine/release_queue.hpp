/// Buffers that are to be released, oldest first. Buffers in its middle may be taken out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace spillway {

template <typename WeakBuffer>
class ReleaseQueue {
 public:
  struct Entry {
    WeakBuffer buffer;
    std::uint64_t number = 0;  // They ascend, from 1 on.
    std::int64_t bytes = 0;    // 0: it was taken out.
  };

  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
  /// How many buffers are in it, and their bytes.
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  /// Entries, also of those that were taken out.
  [[nodiscard]] const std::deque<Entry>& entries() const noexcept { return entries_; }

  /// Returns the number of its entry.
  std::uint64_t push(WeakBuffer buffer, std::int64_t bytes) {
    entries_.push_back({std::move(buffer), ++last_, bytes});
    ++count_;
    bytes_ += bytes;
    return last_;
  }

  /// Precondition: not empty(). The first entry was not taken out.
  [[nodiscard]] Entry pop() {
    Entry oldest = std::move(entries_.front());
    entries_.pop_front();
    --count_;
    bytes_ -= oldest.bytes;
    trim();
    return oldest;
  }

  /// Precondition: the entry is in it.
  void take_out(std::uint64_t number) {
    const auto entry = std::lower_bound(
        entries_.begin(), entries_.end(), number,
        [](const Entry& each, std::uint64_t wanted) { return each.number < wanted; });
    bytes_ -= std::exchange(entry->bytes, 0);
    --count_;
    trim();
  }

 private:
  /// The first and the last entry were not taken out.
  void trim() {
    while (!entries_.empty() && entries_.front().bytes == 0) entries_.pop_front();
    while (!entries_.empty() && entries_.back().bytes == 0) entries_.pop_back();
  }

  std::deque<Entry> entries_;
  std::int64_t count_ = 0;
  std::int64_t bytes_ = 0;
  std::uint64_t last_ = 0;
};

}  // namespace spillway
