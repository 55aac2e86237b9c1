#include "spillway/schedule/schedule_check.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "schedule/channels.hpp"
#include "schedule/messages.hpp"
#include "spillway/core/error.hpp"

namespace spillway {
namespace {

constexpr const char* kOperation = "pipeline schedule check";

/// The list of one rank, checked by itself.
class RankCheck {
 public:
  explicit RankCheck(const PipelineRank& rank) : rank_(rank) {}

  /// The most passes in flight.
  int run(const std::vector<PipelineAction>& actions) {
    for (const PipelineAction& action : actions) take(action);
    for (int chunk = 0; chunk < rank_.chunks; ++chunk) {
      for (int micro_batch = 0; micro_batch < rank_.micro_batches; ++micro_batch) {
        require_all({chunk, micro_batch, false});
        require_all({chunk, micro_batch, true});
      }
    }
    return peak_;
  }

 private:
  void take(const PipelineAction& action) {
    if (action.chunk < 0 || action.chunk >= rank_.chunks || action.micro_batch < 0 ||
        action.micro_batch >= rank_.micro_batches) {
      refuse(action, "is of a pass that does not exist: there are " + std::to_string(rank_.chunks) +
                         " chunks and " + std::to_string(rank_.micro_batches) + " micro-batches");
    }
    if (!seen_.insert(key(action)).second) refuse(action, "comes twice");
    switch (action.kind) {
      case PipelineActionKind::kForward:
        return take_forward(action);
      case PipelineActionKind::kBackward:
        return take_backward(action);
      case PipelineActionKind::kSendActivation:
      case PipelineActionKind::kSendGradient:
        return take_send(action);
      case PipelineActionKind::kReceiveActivation:
      case PipelineActionKind::kReceiveGradient:
        return take_receive(action);
    }
  }

  void take_forward(const PipelineAction& action) {
    const PassStep pass{action.chunk, action.micro_batch, false};
    require_received(action, pass);
    // On a single stage nothing is received: the chunk before has to be through.
    if (rank_.stages == 1 && pass.chunk > 0) {
      require_before(action, {PipelineActionKind::kForward, pass.chunk - 1, pass.micro_batch});
    }
    peak_ = std::max(peak_, ++passes_in_flight_);
  }

  void take_backward(const PipelineAction& action) {
    const PassStep pass{action.chunk, action.micro_batch, true};
    require_before(action, {PipelineActionKind::kForward, pass.chunk, pass.micro_batch});
    require_received(action, pass);
    if (rank_.stages == 1 && pass.chunk + 1 < rank_.chunks) {
      require_before(action, {PipelineActionKind::kBackward, pass.chunk + 1, pass.micro_batch});
    }
    --passes_in_flight_;
  }

  void take_send(const PipelineAction& action) {
    const bool gradient = action.kind == PipelineActionKind::kSendGradient;
    require_peer(action, made_by({action.chunk, action.micro_batch, gradient}, rank_));
    require_before(action, {gradient ? PipelineActionKind::kBackward : PipelineActionKind::kForward,
                            action.chunk, action.micro_batch});
  }

  void take_receive(const PipelineAction& action) {
    const bool gradient = action.kind == PipelineActionKind::kReceiveGradient;
    require_peer(action, needed_by({action.chunk, action.micro_batch, gradient}, rank_));
  }

  void require_peer(const PipelineAction& action, const std::optional<PipelineAction>& wanted) {
    if (!wanted) refuse(action, "has no stage at the other end");
    if (action.peer != wanted->peer) {
      refuse(action, "has the wrong peer; stage " + std::to_string(wanted->peer) + " was wanted");
    }
  }

  void require_received(const PipelineAction& action, const PassStep& pass) {
    if (const auto receive = needed_by(pass, rank_)) require_before(action, *receive);
  }

  void require_before(const PipelineAction& action, const PipelineAction& other) {
    if (!seen_.contains(key(other))) {
      refuse(action, "comes before \"" + to_string(other) + "\", which it needs");
    }
  }

  void require_all(const PassStep& pass) {
    const PipelineAction action{
        pass.backward ? PipelineActionKind::kBackward : PipelineActionKind::kForward, pass.chunk,
        pass.micro_batch};
    if (!seen_.contains(key(action))) refuse(action, "is missing");
    if (const auto send = made_by(pass, rank_); send && !seen_.contains(key(*send))) {
      refuse(*send, "is missing");
    }
  }

  /// Tags are the channels' to check.
  static std::tuple<PipelineActionKind, int, int> key(const PipelineAction& action) {
    return {action.kind, action.chunk, action.micro_batch};
  }

  [[noreturn]] void refuse(const PipelineAction& action, const std::string& problem) const {
    throw InvalidArgument(kOperation, "on stage " + std::to_string(rank_.stage) + ", \"" +
                                          to_string(action) + "\" " + problem);
  }

  PipelineRank rank_;
  std::set<std::tuple<PipelineActionKind, int, int>> seen_;
  int passes_in_flight_ = 0;
  int peak_ = 0;
};

}  // namespace

ScheduleFacts check_schedule(const std::vector<std::vector<PipelineAction>>& ranks, int chunks,
                             int micro_batches) {
  const int stages = static_cast<int>(ranks.size());
  if (stages < 1 || chunks < 1 || micro_batches < 1) {
    throw InvalidArgument(kOperation,
                          "at least one stage, chunk and micro-batch is needed, found " +
                              std::to_string(stages) + ", " + std::to_string(chunks) + " and " +
                              std::to_string(micro_batches));
  }
  ScheduleFacts facts;
  for (int stage = 0; stage < stages; ++stage) {
    facts.peak_passes_in_flight.push_back(RankCheck({stage, stages, chunks, micro_batches})
                                              .run(ranks[static_cast<std::size_t>(stage)]));
  }
  const Channels channels(ranks);
  channels.require_matching_ends();
  channels.require_progress();
  facts.receives_ahead = channels.receives_ahead();
  return facts;
}

}  // namespace spillway
