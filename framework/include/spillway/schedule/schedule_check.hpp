/// Runs the lists of all ranks of a pipeline together and says whether they fit. For tests, and for
/// schedules that somebody else made.
#pragma once

#include <vector>

#include "spillway/schedule/schedule.hpp"

namespace spillway {

/// What the lists of all ranks amount to.
struct ScheduleFacts {
  /// By stage: the most passes whose forward has begun and whose backward is not over.
  std::vector<int> peak_passes_in_flight;
  /// For sends that block until the other end receives: how many receives of each channel (from one
  /// stage to another, activations or gradients) have to be posted ahead of the one that the list
  /// stands at, so that no rank waits for ever. 0: none, the list's order is enough.
  int receives_ahead = 0;

  /// Whether the order of the lists cannot deadlock, also if every send blocks until it is
  /// received. Else only with buffered sends, or with that many receives posted ahead.
  [[nodiscard]] bool rendezvous_safe() const { return receives_ahead == 0; }
};

/// `ranks`: the list of each stage. Checked, in this order:
/// - each list alone: every pass of `chunks` and `micro_batches` once, each forward before its
///   backward; each message of the right peer, before the pass that needs it or after the one that
///   made it, none missing and none twice; on one stage, chunks in order;
/// - each channel: what is received has the tags of what is sent, each tag once, in the same order
///   (a transport need not know tags);
/// - all lists at once: no rank waits for ever, if sends do not block.
/// Errors: InvalidArgument with the stage, the action and what is wrong with it.
ScheduleFacts check_schedule(const std::vector<std::vector<PipelineAction>>& ranks, int chunks,
                             int micro_batches);

}  // namespace spillway
