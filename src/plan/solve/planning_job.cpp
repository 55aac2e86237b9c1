#include "plan/solve/planning_job.hpp"

#include <string>
#include <system_error>
#include <utility>

#include "spillway/core/error.hpp"
#include "spillway/plan/simulate.hpp"

namespace spillway {

PlanningJob::PlanningJob(Question question) {
  question.options.fits = [this] { advance(State::kFits); };
  question.options.unwanted = [this] {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  };
  const auto asked = std::make_shared<const Question>(std::move(question));
  const auto work = [this, asked] {
    answer_ = plan(*asked);
    advance(State::kDone);
  };
  try {
    *thread_ = std::thread(work);
  } catch (const std::system_error&) {
    work();
  }
}

PlanningJob::~PlanningJob() {
  if (!thread_.in_its_process()) return;
  cancel();
  if (has_thread()) thread_->join();
}

void PlanningJob::advance(State state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  advanced_->notify_all();
}

void PlanningJob::wait_for(State state) const {
  std::unique_lock lock(mutex_);
  advanced_->wait(lock, [&] { return state_ >= state; });
}

bool PlanningJob::done() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kDone;
}

void PlanningJob::wait() const { wait_for(State::kDone); }

void PlanningJob::wait_until_it_fits() const { wait_for(State::kFits); }

void PlanningJob::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
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
    answer.budget = options.budget = question.budget.resolve(kept_peak, question.room);
    options.reserve = question.reserve;
    if (!question.passes.empty()) {
      const std::int64_t more =
          unpredicted_bytes(profile, question.recorded, question.passes, options.budget);
      options.reserve += Bytes(static_cast<std::uint64_t>(more));
    }
    PlannedStep step = plan_or_smallest(profile, options);
    answer.reserve_fits = step.reserved == options.reserve;
    answer.plan = std::make_shared<const Plan>(std::move(step.plan));
    if (!step.problem.empty()) {
      answer.error = std::make_exception_ptr(PlanInfeasible("plan", step.problem));
    }
  } catch (...) {
    answer.error = std::current_exception();
  }
  return answer;
}

}  // namespace spillway
