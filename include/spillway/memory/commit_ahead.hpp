/// Commits a part of an address range on a thread of its own, while its owner does something else.
/// Threads: one at a time.
#pragma once

#include <exception>
#include <optional>
#include <thread>

#include "spillway/memory/address_range.hpp"

namespace spillway {

class CommitAhead {
 public:
  /// Returns at once. Precondition: nothing is under way; `range` lives until wait().
  void start(AddressRange& range, Bytes from, Bytes to, std::optional<int> numa_node);

  /// Blocks until what was started is done. Gives the error of the last start(), if it had one.
  std::exception_ptr wait();

  /// Gives back what is committed beyond `end`, and forgets errors. Blocks as wait().
  void cut(AddressRange& range, Bytes end);

  /// How far the range is committed once what was started is done.
  [[nodiscard]] Bytes reach() const noexcept { return started_ > end_ ? started_ : end_; }

  /// How far the range was committed by starts that succeeded and were waited for.
  [[nodiscard]] Bytes end() const noexcept { return end_; }

 private:
  Bytes end_;
  Bytes started_;
  std::exception_ptr error_;  // Written by the thread, read after it has ended.
  std::jthread thread_;       // Last: it uses the above.
};

}  // namespace spillway
