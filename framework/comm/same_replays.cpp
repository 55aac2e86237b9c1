#include "spillway/comm/same_replays.hpp"

#include <ATen/ops/full.h>

#include "spillway/core/error.hpp"
#include "util/digest.hpp"

namespace spillway {
namespace {

/// What decides which calls are repeated, and in which order.
void add_replays(Digest& digest, const ChunkPlan& chunk) {
  const auto add = [&](int number) { digest.add(static_cast<std::uint64_t>(number)); };
  add(chunk.chunk);
  for (const Decision& decision : chunk.decisions) {
    add(decision.buffer);
    add(static_cast<int>(decision.action.kind));
  }
  for (const Anchor& anchor : chunk.anchors) {
    add(anchor.call);
    add(anchor.output);
  }
  for (const RecordedOperator& call : chunk.operators) add(call.call);
  for (const int buffer : chunk.need_order) add(buffer);
}

}  // namespace

void require_same_replays(const Group& group, const Plan* plan, c10::Device device) {
  if (group.size() == 1) return;
  Digest digest;
  if (plan != nullptr && plan->recompute_collectives) {
    for (const ChunkPlan& chunk : plan->chunks) add_replays(digest, chunk);
  }
  const auto options = at::TensorOptions(device).dtype(at::kLong);
  const auto mine = static_cast<std::int64_t>(digest.value());
  const at::Tensor all = group.all_gather(at::full({1}, mine, options)).cpu();
  for (int rank = 1; rank < group.size(); ++rank) {
    if (all[rank].item<std::int64_t>() == all[0].item<std::int64_t>()) continue;
    throw InvalidArgument(
        "recompute_collectives",
        "ranks " + std::to_string(group.ranks()[0]) + " and " +
            std::to_string(group.ranks()[static_cast<std::size_t>(rank)]) + " of the group " +
            group.name() +
            " would replay different calls, and so wait for collectives that the other does not "
            "repeat; give both the same rules and no budget, or set recompute_collectives = false");
  }
}

}  // namespace spillway
