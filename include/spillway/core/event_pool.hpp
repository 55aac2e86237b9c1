/// Reuses events, so that a warm engine creates none.
///
/// Threads: any. Lifetime: an EventRef may outlive the pool, not the device.
#pragma once

#include <cstddef>
#include <memory>

#include "spillway/core/device.hpp"
#include "spillway/core/event.hpp"

namespace spillway {

class EventPool {
 public:
  EventPool(Device& device, Timing timing);

  /// An event nobody else refers to. It goes back to the pool with its last reference; whatever it
  /// was recorded as before means nothing to the next taker.
  [[nodiscard]] EventRef take();

  /// How many events were ever created.
  [[nodiscard]] std::size_t made() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace spillway
