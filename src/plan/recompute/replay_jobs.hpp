/// The replays of a pass under a plan, as a session carries them out: which unpack repeats which
/// calls, what that makes, and how long everything stays.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/profile/pass_model.hpp"
#include "spillway/plan/plan.hpp"

namespace spillway {

/// What a session lets replays leave for later ones, unless it is told otherwise.
inline constexpr std::int64_t kRecomputeCacheLimit = std::int64_t{1} << 30;

/// One replay: what an unpack makes the session repeat.
struct ReplayJob {
  int place = 0;           ///< In the order of unpacks.
  int buffer = 0;          ///< The one that was asked for.
  std::vector<int> calls;  ///< In order.
  std::int64_t ns = 0;
  std::vector<int> makes;  ///< Recomputed buffers that are there afterwards.
  /// Kept and offloaded buffers and anchors that must be there, in the order in which they are
  /// fetched; anchors count on from the buffers' ids.
  std::vector<int> reads;
  /// The most that values of replays take at once while it runs, beside `makes`: what it makes in
  /// between, and what lingers from earlier ones. Not less than what lingers afterwards.
  std::int64_t transient_bytes = 0;
};

/// How many bytes stay for later replays from a moment on.
struct CachedBytes {
  int moment = 0;
  std::int64_t bytes = 0;
};

struct ReplayPlan {
  std::vector<ReplayJob> jobs;  ///< In the order of unpacks.
  /// By buffer, then anchor: the moment after which nobody wants it any more: it was dropped, and
  /// so was everything that is recomputed from it.
  std::vector<int> held_until;
  /// By buffer: the moment at which the session lets go of a recomputed buffer's memory in forward:
  /// its save, or the end of the call that makes it. -1 for others.
  std::vector<int> given_up;
  /// By anchor: the moment from which it is held.
  std::vector<int> anchored;
  /// In order; nothing lingers before the first. Changes with jobs, and when a recomputed buffer is
  /// dropped that later replays still read.
  std::vector<CachedBytes> cached;
};

/// Errors: InvalidArgument if a buffer is to be recomputed that nobody is known to have made.
[[nodiscard]] ReplayPlan replays_of(const PassModel& model, const ChunkPlan& plan,
                                    std::int64_t cache_limit = kRecomputeCacheLimit);

}  // namespace spillway
