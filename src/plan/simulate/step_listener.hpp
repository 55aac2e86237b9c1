/// What a simulated step tells of itself: positions, and a listener for its events.
#pragma once

#include <cstdint>

#include "engine/records.hpp"
#include "plan/recompute/replay_jobs.hpp"

namespace spillway {

class StepWalk;

/// A position in a step: a moment of a pass.
struct StepPosition {
  int pass = 0;   ///< In the order of their forwards.
  int chunk = 0;  ///< Its index in the profile.
  bool backward = false;
  int moment = 0;
};

/// An item of a pass.
struct ItemRef {
  int pass = 0;
  int item = 0;
};

/// Receives the events of a step in order.
class StepListener {
 public:
  virtual ~StepListener() = default;

  /// The device computes from the moment before to this one, with at most `bytes` allocated.
  virtual void computes(const StepPosition& /*position*/, std::int64_t /*ns*/,
                        std::int64_t /*bytes*/) {}
  /// Calls are repeated, with at most `bytes` allocated meanwhile.
  virtual void repeats(const StepPosition& /*position*/, const ReplayJob& /*job*/,
                       std::int64_t /*bytes*/) {}
  virtual void copies_out(const StepPosition& /*position*/, ItemRef /*what*/,
                          std::int64_t /*bytes*/) {}
  /// Compute waits for the copy out; the memory is free.
  virtual void releases(const StepPosition& /*position*/, ItemRef /*what*/) {}
  /// A copied-out item was used without a reload and is released. Compute waits for the copy,
  /// unless it has not been queued.
  virtual void gives_up(const StepPosition& /*position*/, ItemRef /*what*/) {}
  virtual void copies_back(const StepPosition& /*position*/, ItemRef /*what*/,
                           std::int64_t /*bytes*/) {}
  /// Compute waits for the copy back.
  virtual void fetches(const StepPosition& /*position*/, ItemRef /*what*/) {}
  /// The all-gather begins, after the reload of this rank's part if that was `away`.
  virtual void gathers(const StepPosition& /*position*/, ItemRef /*what*/, bool /*away*/) {}
  /// Compute waits for the all-gather.
  virtual void has_gathered(const StepPosition& /*position*/, ItemRef /*what*/) {}
  /// Groups of small copies that are still open are queued.
  virtual void hands_over() {}
  /// A site was saved. Returns a limit on managed bytes, besides the plan's list.
  virtual ByteLimit saved(const StepWalk& /*walk*/, const StepPosition& /*position*/,
                          int /*site*/) {
    return {};
  }
  /// The unpacked item is available; `fetched` bytes of it had to be copied back now. Returns a
  /// limit for what is prefetched, as above.
  virtual ByteLimit unpacked(const StepWalk& /*walk*/, const StepPosition& /*position*/,
                             int /*unpack*/, std::int64_t /*fetched*/) {
    return {};
  }
};

}  // namespace spillway
