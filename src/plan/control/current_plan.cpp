#include "plan/control/current_plan.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "spillway/core/error.hpp"
#include "spillway/plan/rules.hpp"

namespace spillway {

CurrentPlan::CurrentPlan(StepModes& modes, ControlledSession& session,
                         std::optional<Bytes> recompute_cache, std::function<void()> adopted)
    : modes_(modes),
      session_(session),
      recompute_cache_(recompute_cache),
      adopted_(std::move(adopted)) {}

void CurrentPlan::give(Plan plan) {
  if (profile_ == nullptr) {
    // Whether it fits is seen when it is executed.
    if (modes_.due(StepMode::kRecording)) modes_.on(ModeEvent::kRecordingNotNeeded);
  } else if (!made_for(plan, *profile_)) {
    throw InvalidArgument("plan",
                          "the plan was made for another structure than the one recorded; "
                          "make a new one with `spillway plan`");
  } else {
    plan = with_signatures_of(*profile_, std::move(plan));
  }
  given_ = std::move(plan);
}

bool CurrentPlan::adopt_given() {
  if (given_ && profile_ != nullptr && !made_for(*given_, *profile_)) {
    session_.count_fallback("the plan given was made for another structure than the one recorded");
    given_.reset();
  }
  if (!given_) return false;
  modes_.on(ModeEvent::kPlanAdopted);
  adopt(profile_ == nullptr ? *given_ : with_signatures_of(*profile_, *given_));
  return true;
}

void CurrentPlan::adopt(Plan plan) {
  if (!plan.limits.recompute_cache) plan.limits.recompute_cache = recompute_cache_;
  const bool amended = session_.amend(plan);
  // One of the last schema, or made by hand.
  const bool lacks_lists = given_ && std::ranges::all_of(plan.chunks, [](const ChunkPlan& chunk) {
                             return chunk.residency.empty();
                           });
  plan_ = std::make_shared<const Plan>(std::move(plan));
  demoted_.clear();
  adopted_();
  if (amended || lacks_lists) session_.renew_lists();
}

void CurrentPlan::adopt_interim() {
  modes_.on(ModeEvent::kPlanMissing);
  Rules offload_all;
  offload_all.rules.emplace_back().action.kind = ActionKind::kOffload;
  Plan plan = make_plan(*profile_, offload_all);
  for (ChunkPlan& chunk : plan.chunks) {
    for (Decision& decision : chunk.decisions) {
      if (decision.fixed == FixedReason::kNone) decision.reason = "no plan yet";
    }
  }
  adopt(std::move(plan));
}

void CurrentPlan::revise(Plan plan) {
  plan_ = std::make_shared<const Plan>(std::move(plan));
  session_.plan_revised();
}

bool CurrentPlan::is_improved_by(const Profile& fresh) const {
  std::map<std::pair<int, std::uint64_t>, int> left;
  int lost = 0;
  int gained = 0;
  for (const ChunkProfile& chunk : profile_->chunks) {
    for (const SiteProfile& site : chunk.sites) ++left[{chunk.chunk, site.signature}];
    lost += static_cast<int>(chunk.sites.size());
  }
  for (const ChunkProfile& chunk : fresh.chunks) {
    for (const SiteProfile& site : chunk.sites) {
      const auto found = left.find({chunk.chunk, site.signature});
      if (found != left.end() && found->second-- > 0) {
        --lost;
      } else {
        ++gained;
      }
    }
  }
  return gained > 0 && gained >= lost;
}

bool CurrentPlan::switch_to(PassSchedule schedule, PlanningProblem& problem) {
  cache_plan(problem);
  schedule_ = std::move(schedule);
  std::optional<CachedPlan> cached = cache_.take(schedule_);
  if (!cached) return false;
  problem = {};
  if (cached->plan == nullptr) {
    adopt_interim();
    problem = std::move(cached->problem);
    return true;
  }
  modes_.on(cached->verified ? ModeEvent::kVerifiedPlanAdopted : ModeEvent::kPlanAdopted);
  problem = std::move(cached->problem);
  adopt(*cached->plan);
  demoted_ = std::move(cached->demoted);
  return true;
}

void CurrentPlan::cache_plan(const PlanningProblem& problem) {
  const bool interim = modes_.due(StepMode::kInterim);
  if (interim && problem.text.empty()) return;
  CachedPlan cached;
  cached.schedule = schedule_;
  if (!interim) cached.plan = plan_;
  cached.problem.text = problem.text;
  cached.verified = !modes_.due(StepMode::kVerifying);
  cached.demoted = demoted_;
  cache_.put(std::move(cached));
}

}  // namespace spillway
