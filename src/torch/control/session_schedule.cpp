#include <algorithm>
#include <utility>

#include "torch/execute/session_core.hpp"

namespace spillway {
void SessionCore::announce_backward(StepNumber number) {
  if (!in_its_process()) return;
  const ComputePause compute_pause(*this);  // Reads how much is allocated.
  const std::lock_guard lock(mutex_);
  if (is_step(number)) backward_announced_ = true;
}

void SessionCore::follow(const Pass& pass, bool backward) {
  if (follower_.advance({pass.key.chunk, pass.key.micro_batch, backward})) return;
  count_fallback("the passes did not run in the order of the schedule");
}

std::optional<PassKey> SessionCore::next_backward() const {
  if (follower_.on_schedule()) {
    const std::optional<PassStep> next = follower_.next_backward();
    if (!next) return std::nullopt;
    return PassKey{next->chunk, next->micro_batch};
  }
  // As in the previous step.
  if (backward_order_.empty()) return std::nullopt;
  const auto here =
      std::find(last_backward_order_.begin(), last_backward_order_.end(), backward_order_.back());
  if (here == last_backward_order_.end() || here + 1 == last_backward_order_.end()) {
    return std::nullopt;
  }
  return *(here + 1);
}

}  // namespace spillway
