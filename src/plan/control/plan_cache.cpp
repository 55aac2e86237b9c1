#include "plan/control/plan_cache.hpp"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// Enough for the schedules that alternate in practice: training and an uneven last batch.
constexpr std::size_t kMaxPlans = 4;

}  // namespace

void PlanCache::put(CachedPlan plan) {
  std::erase_if(plans_, [&](const CachedPlan& each) { return each.schedule == plan.schedule; });
  if (plans_.size() == kMaxPlans) plans_.erase(plans_.begin());
  plans_.push_back(std::move(plan));
}

std::optional<CachedPlan> PlanCache::take(const PassSchedule& schedule) {
  const auto found = std::ranges::find(plans_, schedule, &CachedPlan::schedule);
  if (found == plans_.end()) return std::nullopt;
  std::optional<CachedPlan> taken = std::move(*found);
  plans_.erase(found);
  return taken;
}

}  // namespace spillway
