#include "schedule/messages.hpp"

namespace spillway {
namespace {

/// The part that stands `by` parts behind that of the pass, if there is one and it is on another
/// rank.
std::optional<int> neighbour(const PassStep& pass, const PipelineRank& rank, int by) {
  const int part = pass.chunk * rank.stages + rank.stage + by;
  if (rank.stages == 1 || part < 0 || part >= rank.chunks * rank.stages) return std::nullopt;
  return part;
}

int tag_of(int sender_chunk, int micro_batch, bool gradient, const PipelineRank& rank) {
  return (micro_batch * rank.chunks + sender_chunk) * 2 + (gradient ? 1 : 0);
}

}  // namespace

std::optional<PipelineAction> needed_by(const PassStep& pass, const PipelineRank& rank) {
  const std::optional<int> from = neighbour(pass, rank, pass.backward ? 1 : -1);
  if (!from) return std::nullopt;
  return PipelineAction{
      pass.backward ? PipelineActionKind::kReceiveGradient : PipelineActionKind::kReceiveActivation,
      pass.chunk, pass.micro_batch, *from % rank.stages,
      tag_of(*from / rank.stages, pass.micro_batch, pass.backward, rank)};
}

std::optional<PipelineAction> made_by(const PassStep& pass, const PipelineRank& rank) {
  const std::optional<int> to = neighbour(pass, rank, pass.backward ? -1 : 1);
  if (!to) return std::nullopt;
  return PipelineAction{
      pass.backward ? PipelineActionKind::kSendGradient : PipelineActionKind::kSendActivation,
      pass.chunk, pass.micro_batch, *to % rank.stages,
      tag_of(pass.chunk, pass.micro_batch, pass.backward, rank)};
}

}  // namespace spillway
