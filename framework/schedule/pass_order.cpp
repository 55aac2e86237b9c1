#include "schedule/pass_order.hpp"

#include <algorithm>
#include <cstddef>

namespace spillway {
namespace {

/// All passes of one direction, group by group: a group runs through one chunk after another, and
/// backward through the last chunk first.
PassSchedule grouped(int micro_batches, int group, int chunks, bool backward) {
  PassSchedule passes;
  for (int first = 0; first < micro_batches; first += group) {
    const int end = std::min(first + group, micro_batches);
    for (int i = 0; i < chunks; ++i) {
      const int chunk = backward ? chunks - 1 - i : i;
      for (int micro_batch = first; micro_batch < end; ++micro_batch) {
        passes.push_back({chunk, micro_batch, backward});
      }
    }
  }
  return passes;
}

/// `warm_up` forwards, then by turns, then the backwards that are left.
PassSchedule by_turns(const PassSchedule& forwards, const PassSchedule& backwards,
                      std::size_t warm_up) {
  PassSchedule order(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(warm_up));
  for (std::size_t i = 0; i < backwards.size(); ++i) {
    if (warm_up + i < forwards.size()) order.push_back(forwards[warm_up + i]);
    order.push_back(backwards[i]);
  }
  return order;
}

PassSchedule one_forward_one_backward(const PipelineRank& rank) {
  const int behind = rank.stages - 1 - rank.stage;
  int warm_up = behind;
  int micro_batches = rank.micro_batches;
  if (rank.chunks > 1) {
    warm_up = 2 * behind + (rank.chunks - 1) * rank.stages;
    // A group of fewer than `stages` could make a stage wait for a forward that cannot come before
    // the stage's own next backward. The order for whole groups has no such wait.
    micro_batches = (micro_batches + rank.stages - 1) / rank.stages * rank.stages;
  }
  warm_up = std::min(warm_up, micro_batches * rank.chunks);
  PassSchedule order = by_turns(grouped(micro_batches, rank.stages, rank.chunks, false),
                                grouped(micro_batches, rank.stages, rank.chunks, true),
                                static_cast<std::size_t>(warm_up));
  std::erase_if(order, [&](const PassStep& p) { return p.micro_batch >= rank.micro_batches; });
  return order;
}

PassSchedule gpipe(const PipelineRank& rank) {
  PassSchedule order = grouped(rank.micro_batches, rank.micro_batches, rank.chunks, false);
  const PassSchedule back = grouped(rank.micro_batches, rank.micro_batches, rank.chunks, true);
  order.insert(order.end(), back.begin(), back.end());
  return order;
}

}  // namespace

PassSchedule order_of_passes(ScheduleKind kind, const PipelineRank& rank) {
  switch (kind) {
    case ScheduleKind::kOneForwardOneBackward:
      return one_forward_one_backward(rank);
    case ScheduleKind::kGpipe:
      return gpipe(rank);
  }
  return {};
}

}  // namespace spillway
