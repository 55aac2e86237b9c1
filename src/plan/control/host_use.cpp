#include "plan/control/host_use.hpp"

#include <algorithm>

namespace spillway {
namespace {

constexpr int kMostSettlingSteps = 4096;
/// More than was needed is left, for sizes that change from step to step: one eighth.
constexpr std::uint64_t kMargin = 8;
/// What is given back is at least this part of what is pinned: a quarter.
constexpr std::uint64_t kWorthwhile = 4;

}  // namespace

void HostUse::plan_adopted() noexcept {
  state_ = State::kSettling;
  steps_ = 0;
  verified_ = false;
  reach_ = {};
}

std::optional<Bytes> HostUse::step_ended(const Step& step) {
  if (kept_ && step.reach > *kept_) {
    // What was given back was needed again: look longer before the next time.
    kept_.reset();
    wanted_steps_ = std::min(2 * wanted_steps_, kMostSettlingSteps);
  }
  if (state_ == State::kSettled || !step.steady) return std::nullopt;
  reach_ = std::max(reach_, step.reach);
  verified_ = verified_ || step.verified;
  ++steps_;
  // Steps that verify offload what others recompute.
  const bool seen_all = verify_every_ <= 0 || verified_;
  if (steps_ < wanted_steps_ || !seen_all) return std::nullopt;
  state_ = State::kSettled;
  const Bytes keep = std::max(reach_ + Bytes(reach_.count() / kMargin), prepare_);
  if (keep + Bytes(step.pinned.count() / kWorthwhile) > step.pinned) return std::nullopt;
  kept_ = keep;
  return keep;
}

}  // namespace spillway
