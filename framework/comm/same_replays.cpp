#include "spillway/comm/same_replays.hpp"

#include <ATen/ops/full.h>

#include "plan/recompute/need_order.hpp"
#include "spillway/core/error.hpp"

namespace spillway {
void require_same_replays(const Group& group, const Plan* plan, c10::Device device) {
  if (group.size() == 1) return;
  const std::uint64_t digest = plan == nullptr ? 0 : replay_digest(*plan);
  const auto options = at::TensorOptions(device).dtype(at::kLong);
  const auto mine = static_cast<std::int64_t>(digest);
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
