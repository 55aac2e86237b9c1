#include "plan/solve/planning_job.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "spillway/core/error.hpp"
#include "spillway/plan/simulate.hpp"

namespace spillway {

namespace {

/// A plan for `budget`, of which `kept_back` is not the planner's.
PlannedStep plan_with_less(const Profile& profile, PlannerOptions options, Bytes budget,
                           Bytes kept_back) {
  options.budget = budget - std::min(budget, kept_back);
  if (kept_back == Bytes(0)) return plan_for_budget(profile, options);
  const std::string why =
      to_string(kept_back) + " of the budget of " + to_string(budget) +
      " are left for what the planner cannot know (what later passes have beside saved buffers, "
      "what the allocator hands out beyond what it is asked for)";
  try {
    PlannedStep step = plan_for_budget(profile, options);
    step.peak += kept_back;
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
  thread_ = std::thread([this, question = std::move(question)] {
    answer_ = plan(question);
    done_ = true;
  });
}

PlanningJob::~PlanningJob() { thread_.join(); }

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
    Bytes kept_back = question.reserve;
    if (!question.passes.empty()) {
      const std::int64_t more =
          unpredicted_bytes(profile, question.recorded, question.passes, budget);
      kept_back += Bytes(static_cast<std::uint64_t>(more));
    }
    answer.planned = plan_with_less(profile, options, budget, kept_back);
  } catch (...) {
    answer.error = std::current_exception();
  }
  return answer;
}

}  // namespace spillway
