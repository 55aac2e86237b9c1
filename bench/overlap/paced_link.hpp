/// Emulates expert-parallel ranks in one process: a group whose exchanges run on a stream of their
/// own and take as long as the bytes would on a link of a given speed.
///
/// The other ranks are emulated as copies of this one: from each of them arrive as many tokens as
/// this rank sends to itself, with the values of this rank's tokens (PacedStream). The counts of a
/// dropless exchange arrive at once.
///
/// Threads: as Group. Lifetime: must outlive every model that has its group.
#pragma once

#include <memory>
#include <vector>

#include <c10/core/Device.h>

#include "spillway/core/bytes.hpp"
#include "spillway/core/clock.hpp"
#include "spillway/groups/group.hpp"
#include "spillway/trace/trace.hpp"

namespace spillway::bench {

/// Times of one step on the device, from its begin.
struct LinkedStep {
  Nanoseconds step{};
  Nanoseconds exchanges{};  ///< Sum; they run one after the other.
  Nanoseconds exposed{};    ///< Of that, while compute waited.
  Bytes exchanged;          ///< Sent to other ranks or received from them, the larger of both.
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

  /// Starts collecting times; before the first call none are collected.
  void begin_step();
  /// Forward has ended.
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
