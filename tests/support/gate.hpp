/// Holds a stream still until the test says go.
#pragma once

#include <future>
#include <memory>
#include <utility>

#include "spillway/core/stream.hpp"

namespace spillway::testing {

class Gate {
 public:
  Gate() : opened_(promise_.get_future().share()) {}
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() { open(); }

  /// What is queued on `stream` after this call waits for open().
  void close(Stream& stream) {
    stream.call("gate", [opened = opened_] { opened.wait(); });
  }

  void open() {
    if (!std::exchange(is_open_, true)) promise_.set_value();
  }

 private:
  std::promise<void> promise_;
  std::shared_future<void> opened_;
  bool is_open_ = false;
};

}  // namespace spillway::testing
