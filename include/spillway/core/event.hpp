/// A point in the work of a stream: recorded by one stream, waited for by others or by the host.
///
/// Semantics are CUDA's. An event never recorded counts as done. Recording again moves the event;
/// waits queued before that still mean the old point.
/// Threads: query, synchronize and elapsed_since may be called from any thread; recording and every
/// other use of the same event must not overlap.
/// Lifetime: an event must not outlive its device. Destroying an event that others wait for is
/// fine: a queued wait keeps what it needs.
#pragma once

#include <cstdint>
#include <memory>

#include "spillway/core/clock.hpp"

namespace spillway {

/// Which stream recorded an event, and after how many recordings by that stream. Points of one
/// stream are ordered: whoever has waited for a point has waited for all earlier ones.
struct StreamPoint {
  std::uint64_t stream = 0;
  std::uint64_t order = 0;  ///< 0: never recorded.
};

class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  virtual ~Event() = default;

  /// True when everything queued before it was recorded is done. Never blocks. An error on the way
  /// counts as done; synchronize() throws it.
  [[nodiscard]] virtual bool query() const = 0;

  /// Blocks the host until the event is done.
  /// Errors: DeviceError of the first operation that failed before this point, by its name.
  virtual void synchronize() const = 0;

  /// Time on the device between `start` and this event. Both must come from one device, be made
  /// with Timing::kOn, and be done.
  /// Errors: InvalidArgument without timing or when not recorded, DeviceError when not done.
  [[nodiscard]] virtual Nanoseconds elapsed_since(const Event& start) const = 0;

  /// Where this event was last recorded.
  [[nodiscard]] StreamPoint point() const noexcept { return point_; }

 private:
  friend class Stream;
  StreamPoint point_;
};

/// Shared because a host block that is free again keeps the event of its last reader.
using EventRef = std::shared_ptr<Event>;

}  // namespace spillway
