/// What one rank of a pipeline does in a step, in order: passes, and the messages between them.
/// Pure functions: every rank computes its own list, and the lists of all ranks fit together
/// (schedule_check.hpp).
///
/// The model is split into chunks * stages parts. A rank holds the parts
/// `chunk * stages + stage`, chunk = 0 .. chunks - 1: with several chunks the parts go round the
/// stages several times (virtual stages, interleaved pipeline).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spillway/plan/schedule.hpp"

namespace spillway {

enum class PipelineActionKind {
  kForward,
  kBackward,
  kSendActivation,
  kReceiveActivation,
  kSendGradient,
  kReceiveGradient,
};

/// "forward", "backward", "send activation", ...
[[nodiscard]] std::string_view to_string(PipelineActionKind kind);

/// One thing a rank does. A message belongs to the pass of this rank that makes it or needs it:
/// an activation sent, to the forward that made it; an activation received, to the forward that
/// starts from it; a gradient likewise to a backward. `chunk` is this rank's in either case.
struct PipelineAction {
  PipelineActionKind kind{};
  int chunk = 0;
  int micro_batch = 0;
  int peer = -1;  ///< The stage at the other end of a message; -1 for passes.
  /// The same at both ends of a message. Between two stages no two messages of a step in the same
  /// direction share one: it encodes (activation or gradient, chunk of the sender, micro-batch).
  /// Less than 2 * chunks * micro_batches; 0 for passes.
  int tag = 0;

  bool operator==(const PipelineAction&) const = default;
};

/// "receive activation for chunk 0, micro-batch 3 from stage 1 (tag 6)".
[[nodiscard]] std::string to_string(const PipelineAction& action);

/// Whose list is wanted, in a pipeline of which size.
struct PipelineRank {
  int stage = 0;
  int stages = 1;
  int chunks = 1;  ///< On each stage.
  int micro_batches = 1;

  bool operator==(const PipelineRank&) const = default;
};

enum class ScheduleKind {
  /// One forward, one backward, after a warm-up of forwards alone; interleaved if chunks > 1.
  kOneForwardOneBackward,
  /// All forwards, then all backwards. For comparison: all passes in flight at once.
  kGpipe,
};

/// "1f1b", "gpipe".
[[nodiscard]] std::string_view to_string(ScheduleKind kind);
/// Errors: InvalidArgument with what there is.
[[nodiscard]] ScheduleKind parse_schedule_kind(std::string_view text);

/// The list of one rank.
///
/// Order of the passes, P stages, v chunks, m micro-batches, on stage r:
/// - 1F1B, v = 1: min(P - 1 - r, m) forwards, then a forward and a backward by turns, then the
///   backwards that are left. Passes in flight at most: that warm-up + 1, and never more than m.
/// - 1F1B, v > 1 (interleaved): micro-batches go in groups of P; a group goes forward through chunk
///   0, then through chunk 1, ..., and backward from the last chunk to the first. The warm-up is
///   min(2 (P - 1 - r) + (v - 1) P, m v) forwards. If P does not divide m, the order is that for m
///   rounded up to a multiple of P, with the passes of the micro-batches that are not there left
///   out. What is left keeps its order, so it is as valid as the full one, and has at most as many
///   passes in flight, on the first stages fewer.
/// - GPipe: every micro-batch forward through chunk 0, then chunk 1, ...; then backward from the
///   last chunk to the first, micro-batches from the first to the last in both.
///
/// Messages: a receive stands just before the pass that needs it, a send just after the pass that
/// made it. Activations from one stage to another are received in the order in which they are sent,
/// and so are gradients; a transport without tags needs one channel for each of the two. If a send
/// waits until the other end receives, 1F1B deadlocks in exactly this order, already for P = 2 and
/// m = 2: the runner has to send without waiting, or to keep the next receive of each channel
/// posted (one is enough for 1F1B; GPipe with several chunks needs more: check_schedule() counts
/// them). Where P = 1, chunks hand over on the rank itself: no messages.
///
/// Errors: InvalidArgument if a number is below 1, or the stage is not one of the stages.
[[nodiscard]] std::vector<PipelineAction> make_schedule(ScheduleKind kind,
                                                        const PipelineRank& rank);

/// The passes among the actions, in order, for a session and the planner.
[[nodiscard]] PassSchedule passes_of(const std::vector<PipelineAction>& actions);

}  // namespace spillway
