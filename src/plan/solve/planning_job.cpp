#include "plan/solve/planning_job.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "spillway/core/error.hpp"
#include "spillway/plan/simulate.hpp"

namespace spillway {

namespace {

/// A plan for `budget`, of which the planner may not use `reserved`.
PlannedStep plan_with_less(const Profile& profile, PlannerOptions options, Bytes budget,
                           Bytes reserved) {
  options.budget = budget - std::min(budget, reserved);
  if (reserved == Bytes(0)) return plan_for_budget(profile, options);
  const std::string why =
      "reserved for untracked allocations (later passes, rounding by the allocator): " +
      to_string(reserved) + " of the budget of " + to_string(budget);
  try {
    PlannedStep step = plan_for_budget(profile, options);
    step.peak += reserved;
    step.plan.budget = budget;
    step.plan.predicted_peak = step.peak;
    step.plan.notes.push_back(why);
    return step;
  } catch (const PlanInfeasible& error) {
    const std::string prefix = "[" + error.operation() + "] ";
    throw PlanInfeasible(error.operation(), error.what() + prefix.size() + ("; " + why));
  }
}

}  // namespace

PlanningJob::PlanningJob(Question question) {
  *thread_ = std::thread([this, question = std::move(question)] {
    answer_ = plan(question);
    done_ = true;
  });
}

PlanningJob::~PlanningJob() {
  if (thread_.in_its_process()) thread_->join();
}

PlanningJob::Answer PlanningJob::plan(const Question& question) {
  Answer answer;
  try {
    const Profile& profile = *question.profile;
    PlannerOptions options = question.options;
    Bytes kept_peak;
    if (question.budget.is_share()) {
      SimulateOptions simulation;
      simulation.schedule = options.schedule;
      kept_peak = simulate(profile, make_plan(profile, Rules{}), simulation).peak;
    }
    const Bytes budget = question.budget.resolve(kept_peak, question.room);
    Bytes reserved = question.reserve;
    if (!question.passes.empty()) {
      const std::int64_t more =
          unpredicted_bytes(profile, question.recorded, question.passes, budget);
      reserved += Bytes(static_cast<std::uint64_t>(more));
    }
    answer.planned = plan_with_less(profile, options, budget, reserved);
  } catch (...) {
    answer.error = std::current_exception();
  }
  return answer;
}

}  // namespace spillway
