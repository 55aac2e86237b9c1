#include <algorithm>

#include "torch/execute/session_core.hpp"

namespace spillway {
namespace {

constexpr int kMostSettlingSteps = 4096;
/// More than was needed is left, for sizes that change from step to step: one eighth.
constexpr std::uint64_t kMargin = 8;
/// What is given back is at least this part of what is pinned: a quarter.
constexpr std::uint64_t kWorthwhile = 4;

}  // namespace

bool SessionCore::is_steady_step(bool recorded, bool verified) const {
  const bool replans = job_ != nullptr || budgeting_.time_next || !timed_passes_.empty();
  return plan_ != nullptr && !recorded && !record_next_ && !budgeting_.unplanned && !replans &&
         (!verified || options_.verify_every > 0);
}

void SessionCore::settle_host_memory(bool recorded, bool verified) {
  slab_->retry();
  const Bytes reach = slab_->take_reach();
  if (host_use_.kept && reach > *host_use_.kept) {
    // What was given back was needed again: look longer before the next time.
    host_use_.kept.reset();
    host_use_.wanted_steps = std::min(2 * host_use_.wanted_steps, kMostSettlingSteps);
  }
  if (host_use_.state == HostUse::State::kSettled || !is_steady_step(recorded, verified)) return;
  host_use_.reach = std::max(host_use_.reach, reach);
  host_use_.verified = host_use_.verified || verified;
  ++host_use_.steps;
  // Steps that verify offload what others recompute.
  const bool seen_all = options_.verify_every <= 0 || host_use_.verified;
  if (host_use_.steps < host_use_.wanted_steps || !seen_all) return;
  host_use_.state = HostUse::State::kSettled;
  const Bytes keep =
      std::max(host_use_.reach + Bytes(host_use_.reach.count() / kMargin), options_.prepare);
  const Bytes pinned = slab_->usage().pinned;
  if (keep + Bytes(pinned.count() / kWorthwhile) > pinned) return;
  host_use_.kept = keep;
  slab_->trim(keep);
}

}  // namespace spillway
