/// The replays of a pass under a plan, as a session carries them out: which unpack repeats which
/// calls, what that makes, and how long everything stays.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/pass_model.hpp"
#include "spillway/plan/plan.hpp"

namespace spillway {

/// One replay: what an unpack makes the session repeat.
struct ReplayJob {
  int place = 0;           ///< In the order of unpacks.
  int buffer = 0;          ///< The one that was asked for.
  std::vector<int> calls;  ///< In order.
  std::int64_t ns = 0;
  std::vector<int> makes;  ///< Recomputed buffers that are there afterwards.
  std::vector<int> reads;  ///< Kept and offloaded buffers and anchors that must be there; anchors
                           ///< count on from the buffers' ids.
  /// The most that its intermediate values take at once, beside `makes` and `reads`,
  std::int64_t transient_bytes = 0;
  /// and what of them stays afterwards for later replays, until the end of the given job (by place
  /// in the list of jobs).
  struct Lingering {
    std::int64_t bytes = 0;
    int last_job = 0;
  };
  std::vector<Lingering> lingering;
};

struct ReplayPlan {
  std::vector<ReplayJob> jobs;  ///< In the order of unpacks.
  /// By buffer, then anchor: the moment after which nobody wants it any more: it was dropped, and
  /// so was everything that is recomputed from it.
  std::vector<int> held_until;
};

[[nodiscard]] ReplayPlan replays_of(const PassModel& model, const ChunkPlan& plan);

}  // namespace spillway
