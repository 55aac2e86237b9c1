#include "spillway/memory/commit_ahead.hpp"

#include <algorithm>

namespace spillway {

void CommitAhead::start(AddressRange& range, Bytes from, Bytes to, std::optional<int> numa_node) {
  error_ = nullptr;
  started_ = to;
  thread_ = std::jthread([this, &range, from, to, numa_node] {
    try {
      (void)range.commit(from, to, numa_node);
    } catch (...) {
      error_ = std::current_exception();
    }
  });
}

std::exception_ptr CommitAhead::wait() {
  if (thread_.joinable()) thread_.join();
  if (error_ == nullptr) end_ = started_;
  return error_;
}

void CommitAhead::cut(AddressRange& range, Bytes end) {
  (void)wait();
  if (end_ > end) range.decommit(end, end_);
  end_ = started_ = std::min(end_, end);
  error_ = nullptr;
}

}  // namespace spillway
