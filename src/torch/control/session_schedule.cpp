#include <algorithm>
#include <utility>

#include "torch/control/error_text.hpp"
#include "torch/execute/session_core.hpp"

namespace spillway {
namespace {

/// So many schedules take turns in practice: training, an uneven last batch, and a spare.
constexpr std::size_t kMostKeptPlans = 4;

}  // namespace

void SessionCore::announce_backward() {
  const AtWork at_work(*this);  // It reads how much is allocated.
  const std::lock_guard lock(mutex_);
  backward_announced_ = true;
}

void SessionCore::follow(const Pass& pass, bool backward) {
  if (follower_.takes({pass.key.chunk, pass.key.micro_batch, backward})) return;
  count_fallback("the passes did not come in the order of the schedule");
}

std::optional<PassKey> SessionCore::next_backward() const {
  if (follower_.knows()) {
    const std::optional<PassStep> next = follower_.next_backward();
    if (!next) return std::nullopt;
    return PassKey{next->chunk, next->micro_batch};
  }
  // As in the step before.
  if (backward_order_.empty()) return std::nullopt;
  const auto here =
      std::find(last_backward_order_.begin(), last_backward_order_.end(), backward_order_.back());
  if (here == last_backward_order_.end() || here + 1 == last_backward_order_.end()) {
    return std::nullopt;
  }
  return *(here + 1);
}

PassTail SessionCore::expected_tail(PassKey key) const {
  if (follower_.knows() && !follower_.backward_is_near()) return {};
  const auto same = std::find_if(last_tails_.begin(), last_tails_.end(),
                                 [&](const auto& each) { return each.first == key; });
  if (same != last_tails_.end()) return same->second;
  if (!follower_.knows()) return {};
  // The step before had fewer micro-batches.
  const auto like = std::find_if(last_tails_.rbegin(), last_tails_.rend(),
                                 [&](const auto& each) { return each.first.chunk == key.chunk; });
  return like == last_tails_.rend() ? PassTail{} : like->second;
}

void SessionCore::turn_to(const PassSchedule& schedule) {
  if (schedule.empty() || profile_ == nullptr || options_.plan || record_next_) return;
  PassSchedule wanted = known_part(schedule, *profile_);
  if (!wanted.empty() && wanted != schedule_) {
    keep_plan();
    schedule_ = std::move(wanted);
    if (!take_kept_plan()) wait_for_plan();
  }
  // One job at a time: if it is for another schedule, this one's turn comes behind it.
  const bool wanting = budgeting_.waiting && budgeting_.problem.empty();
  if (wanting && job_ == nullptr) start_planning();
}

void SessionCore::keep_plan() {
  const bool failed = budgeting_.waiting && !budgeting_.problem.empty();
  if (budgeting_.waiting && !failed) return;
  keep({schedule_, failed ? nullptr : plan_, budgeting_.problem, nullptr, !verify_next_, demoted_});
}

void SessionCore::keep_answer(const PlanningJob::Answer& answer) {
  KeptPlan kept;
  kept.schedule = job_schedule_;
  kept.error = answer.error;
  if (answer.error) {
    kept.problem = text_of(answer.error);
  } else {
    ++budgeting_.plans;
    kept.plan = std::make_shared<const Plan>(answer.planned->plan);
  }
  keep(std::move(kept));
}

void SessionCore::keep(KeptPlan plan) {
  std::erase_if(kept_plans_, [&](const KeptPlan& each) { return each.schedule == plan.schedule; });
  if (kept_plans_.size() == kMostKeptPlans) kept_plans_.erase(kept_plans_.begin());
  kept_plans_.push_back(std::move(plan));
}

bool SessionCore::take_kept_plan() {
  const auto found = std::find_if(kept_plans_.begin(), kept_plans_.end(),
                                  [&](const KeptPlan& each) { return each.schedule == schedule_; });
  if (found == kept_plans_.end()) return false;
  KeptPlan kept = std::move(*found);
  kept_plans_.erase(found);
  if (kept.plan == nullptr) {
    wait_for_plan();
    budgeting_.problem = std::move(kept.problem);
    budgeting_.error = std::move(kept.error);
    return true;
  }
  budgeting_.waiting = false;
  budgeting_.problem.clear();
  adopt_plan(*kept.plan);
  verify_next_ = !kept.verified;
  demoted_ = std::move(kept.demoted);
  return true;
}

}  // namespace spillway
