#include "planning_job.hpp"

#include <algorithm>
#include <utility>

#include "spillway/plan/simulate.hpp"

namespace spillway {

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
    options.budget = budget - std::min(budget, question.reserve);
    answer.planned = plan_for_budget(profile, options);
    answer.planned->plan.budget = budget;
  } catch (...) {
    answer.error = std::current_exception();
  }
  return answer;
}

}  // namespace spillway
