/// The replays of a pass under a plan, as a session executes them: which unpack repeats which
/// calls, what they make, and how long each result is kept.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/profile/pass_model.hpp"
#include "spillway/plan/plan.hpp"

namespace spillway {

/// One replay: what an unpack makes the session repeat.
struct ReplayJob {
  int unpack = 0;          ///< In the order of unpacks.
  int buffer = 0;          ///< The unpacked one.
  std::vector<int> calls;  ///< In order.
  std::int64_t ns = 0;
  std::vector<int> makes;  ///< Recomputed buffers that exist afterwards.
  /// Kept and offloaded buffers and anchors that it reads, in the order in which they are fetched;
  /// anchors follow the buffers' ids.
  std::vector<int> reads;
  /// The peak bytes of replayed values while it runs, besides `makes`: its intermediate results and
  /// those cached by earlier jobs. Not less than what is cached afterwards.
  std::int64_t transient_bytes = 0;
};

/// The bytes cached for later replays from a moment on.
struct CachedBytes {
  int moment = 0;
  std::int64_t bytes = 0;
};

struct ReplayPlan {
  std::vector<ReplayJob> jobs;  ///< In the order of unpacks.
  /// By buffer, then anchor: the moment after which it is no longer needed: it was dropped, and so
  /// was everything that is recomputed from it.
  std::vector<int> needed_until;
  /// By buffer: the moment at which the session releases a recomputed buffer's memory in forward:
  /// its save, or the end of the call that makes it. -1 for others.
  std::vector<int> given_up;
  /// By anchor: the moment from which it is held.
  std::vector<int> anchored;
  /// In order; nothing is cached before the first. Changes with jobs, and when a recomputed buffer
  /// that later replays still read is dropped.
  std::vector<CachedBytes> cached;
};

/// `cache_limit`: on intermediate results that replays keep for later ones.
/// Errors: InvalidArgument if the operator that made a buffer to be recomputed is unknown.
[[nodiscard]] ReplayPlan replays_of(const PassModel& model, const ChunkPlan& plan,
                                    Bytes cache_limit = kDefaultRecomputeCache);

}  // namespace spillway
