#include "plan/control/planning_jobs.hpp"

#include <utility>

namespace spillway {

bool PlanningJobs::start(PlanningJob::Question question) {
  drop();
  schedule_ = question.options.schedule;
  job_ = std::make_unique<PlanningJob>(std::move(question));
  return job_->has_thread();
}

void PlanningJobs::drop() {
  if (job_ == nullptr) return;
  // It ends soon, but must not be waited for here.
  job_->cancel();
  dropped_.push_back(std::move(job_));
}

void PlanningJobs::wait_until_it_fits() const {
  if (job_ != nullptr) job_->wait_until_it_fits();
}

void PlanningJobs::wait() const {
  if (job_ != nullptr) job_->wait();
}

std::optional<PlanningJobs::Finished> PlanningJobs::take_finished() {
  if (job_ == nullptr || !job_->done()) return std::nullopt;
  const std::unique_ptr<PlanningJob> job = std::move(job_);
  return Finished{schedule_, job->answer()};
}

void PlanningJobs::free_dropped() {
  std::erase_if(dropped_, [](const auto& job) { return job->done(); });
}

}  // namespace spillway
