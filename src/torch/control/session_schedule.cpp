#include <algorithm>
#include <utility>

#include "torch/execute/session_core.hpp"
#include "torch/hooks/error_text.hpp"

namespace spillway {
namespace {

/// Enough for the schedules that alternate in practice: training and an uneven last batch.
constexpr std::size_t kMaxCachedPlans = 4;

}  // namespace

void SessionCore::announce_backward(StepNumber number) {
  if (!in_its_process()) return;
  const ClockPause clock_pause(*this);  // Reads how much is allocated.
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

PassTail SessionCore::expected_tail(PassKey key) const {
  if (follower_.on_schedule() && !follower_.backward_is_near()) return {};
  const auto same = std::find_if(last_tails_.begin(), last_tails_.end(),
                                 [&](const auto& each) { return each.first == key; });
  if (same != last_tails_.end()) return same->second;
  if (!follower_.on_schedule()) return {};
  // The previous step had fewer micro-batches.
  const auto like = std::find_if(last_tails_.rbegin(), last_tails_.rend(),
                                 [&](const auto& each) { return each.first.chunk == key.chunk; });
  return like == last_tails_.rend() ? PassTail{} : like->second;
}

void SessionCore::switch_to_schedule(const PassSchedule& schedule) {
  if (schedule.empty() || profile_ == nullptr || options_.plan || record_next_) return;
  PassSchedule wanted = known_part(schedule, *profile_);
  if (!wanted.empty() && wanted != schedule_) {
    cache_plan();
    schedule_ = std::move(wanted);
    if (!take_cached_plan()) offload_until_planned();
  }
  // One job at a time: if another schedule is being planned, this one is planned after it.
  const bool needs_plan = budgeting_.unplanned && budgeting_.problem.empty();
  if (needs_plan && job_ == nullptr) start_planning();
}

void SessionCore::cache_plan() {
  const bool failed = budgeting_.unplanned && !budgeting_.problem.empty();
  if (budgeting_.unplanned && !failed) return;
  cache({schedule_, failed ? nullptr : plan_, budgeting_.problem, nullptr, nullptr, !verify_next_,
         demoted_});
}

void SessionCore::cache_answer(const PlanningJob::Answer& answer) {
  CachedPlan cached;
  cached.schedule = job_schedule_;
  cached.error = answer.error;
  if (answer.error) {
    cached.problem = text_of(answer.error);
    cached.smallest = answer.plan;
  } else {
    ++budgeting_.plans;
    cached.plan = answer.plan;
  }
  cache(std::move(cached));
}

void SessionCore::cache(CachedPlan plan) {
  std::erase_if(cached_plans_,
                [&](const CachedPlan& each) { return each.schedule == plan.schedule; });
  if (cached_plans_.size() == kMaxCachedPlans) cached_plans_.erase(cached_plans_.begin());
  cached_plans_.push_back(std::move(plan));
}

bool SessionCore::take_cached_plan() {
  const auto found =
      std::find_if(cached_plans_.begin(), cached_plans_.end(),
                   [&](const CachedPlan& each) { return each.schedule == schedule_; });
  if (found == cached_plans_.end()) return false;
  CachedPlan cached = std::move(*found);
  cached_plans_.erase(found);
  if (cached.plan == nullptr) {
    offload_until_planned();
    budgeting_.problem = std::move(cached.problem);
    budgeting_.error = std::move(cached.error);
    budgeting_.smallest = std::move(cached.smallest);
    return true;
  }
  budgeting_.unplanned = false;
  budgeting_.problem = std::move(cached.problem);
  adopt_plan(*cached.plan);
  verify_next_ = !cached.verified;
  demoted_ = std::move(cached.demoted);
  return true;
}

}  // namespace spillway
