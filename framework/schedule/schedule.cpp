#include "spillway/schedule/schedule.hpp"

#include "schedule/messages.hpp"
#include "schedule/pass_order.hpp"
#include "spillway/core/error.hpp"
#include "spillway/core/nearest.hpp"

namespace spillway {
namespace {

void require_positive(const char* what, int number) {
  if (number < 1) {
    throw InvalidArgument("pipeline schedule", std::string("a pipeline needs at least one ") +
                                                   what + ", found " + std::to_string(number));
  }
}

void require_valid(const PipelineRank& rank) {
  require_positive("stage", rank.stages);
  require_positive("chunk a stage", rank.chunks);
  require_positive("micro-batch", rank.micro_batches);
  if (rank.stage < 0 || rank.stage >= rank.stages) {
    throw InvalidArgument("pipeline schedule", "there is no stage " + std::to_string(rank.stage) +
                                                   " among " + std::to_string(rank.stages) +
                                                   "; stages count from 0 to " +
                                                   std::to_string(rank.stages - 1));
  }
}

bool is_receive(PipelineActionKind kind) {
  return kind == PipelineActionKind::kReceiveActivation ||
         kind == PipelineActionKind::kReceiveGradient;
}

bool is_pass(PipelineActionKind kind) {
  return kind == PipelineActionKind::kForward || kind == PipelineActionKind::kBackward;
}

}  // namespace

std::string_view to_string(PipelineActionKind kind) {
  switch (kind) {
    case PipelineActionKind::kForward:
      return "forward";
    case PipelineActionKind::kBackward:
      return "backward";
    case PipelineActionKind::kSendActivation:
      return "send activation";
    case PipelineActionKind::kReceiveActivation:
      return "receive activation";
    case PipelineActionKind::kSendGradient:
      return "send gradient";
    case PipelineActionKind::kReceiveGradient:
      return "receive gradient";
  }
  return "unknown";
}

std::string to_string(const PipelineAction& action) {
  std::string text(to_string(action.kind));
  text += is_receive(action.kind) ? " for chunk " : " of chunk ";
  text += std::to_string(action.chunk) + ", micro-batch " + std::to_string(action.micro_batch);
  if (is_pass(action.kind)) return text;
  return text + (is_receive(action.kind) ? " from stage " : " to stage ") +
         std::to_string(action.peer) + " (tag " + std::to_string(action.tag) + ")";
}

std::string_view to_string(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kOneForwardOneBackward:
      return "1f1b";
    case ScheduleKind::kGpipe:
      return "gpipe";
  }
  return "unknown";
}

ScheduleKind parse_schedule_kind(std::string_view text) {
  std::vector<std::string> words;
  for (const ScheduleKind kind : {ScheduleKind::kOneForwardOneBackward, ScheduleKind::kGpipe}) {
    if (text == to_string(kind)) return kind;
    words.emplace_back(to_string(kind));
  }
  throw InvalidArgument("pipeline schedule", "there is no schedule \"" + std::string(text) +
                                                 "\"; " + suggestion(text, words));
}

std::vector<PipelineAction> make_schedule(ScheduleKind kind, const PipelineRank& rank) {
  require_valid(rank);
  std::vector<PipelineAction> actions;
  for (const PassStep& pass : order_of_passes(kind, rank)) {
    if (const auto receive = needed_by(pass, rank)) actions.push_back(*receive);
    actions.push_back({pass.backward ? PipelineActionKind::kBackward : PipelineActionKind::kForward,
                       pass.chunk, pass.micro_batch});
    if (const auto send = made_by(pass, rank)) actions.push_back(*send);
  }
  return actions;
}

PassSchedule passes_of(const std::vector<PipelineAction>& actions) {
  PassSchedule passes;
  for (const PipelineAction& action : actions) {
    if (!is_pass(action.kind)) continue;
    passes.push_back(
        {action.chunk, action.micro_batch, action.kind == PipelineActionKind::kBackward});
  }
  return passes;
}

}  // namespace spillway
