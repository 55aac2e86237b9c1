/// A stand-in for the ranks that experts are spread over, in one process: a group whose exchanges
/// happen on a stream of their own and take as long as the bytes would on a link of a given speed.
///
/// The other members are made up to be like this one: as many rows come from each of them as this
/// rank sends to itself, and what comes are this rank's own rows, by a PacedStream. The counts of a
/// dropless exchange come at once.
///
/// Threads: as Group. Lifetime: outlives every model that has its group.
#pragma once

#include <memory>
#include <vector>

#include <c10/core/Device.h>

#include "spillway/core/bytes.hpp"
#include "spillway/core/clock.hpp"
#include "spillway/groups/group.hpp"
#include "spillway/trace/trace.hpp"

namespace spillway::bench {

/// One step as the device saw it. Times count from its begin.
struct LinkedStep {
  Nanoseconds step{};
  Nanoseconds exchanges{};  ///< All of them; they run one after the other.
  Nanoseconds exposed{};    ///< Of that, while computing waited.
  Bytes travelled;          ///< Sent to other ranks, or received of them, whichever is more.
  std::vector<TraceSpan> compute;
  std::vector<TraceSpan> link;
};

class PacedLink {
 public:
  /// This process is the first of `ranks`.
  /// Errors: InvalidArgument if there is no such device.
  PacedLink(c10::Device device, int ranks, double bytes_per_second);
  ~PacedLink();
  PacedLink(const PacedLink&) = delete;
  PacedLink& operator=(const PacedLink&) = delete;

  [[nodiscard]] const Group& group() const noexcept { return group_; }

  /// Notes what happens from here on. Not called: nothing is noted.
  void begin_step();
  /// What comes now is backward.
  void begin_backward();
  /// Waits for the device.
  [[nodiscard]] LinkedStep end_step();

 private:
  class Backend;
  class Work;
  struct State;

  std::shared_ptr<State> state_;
  Group group_;
};

}  // namespace spillway::bench
