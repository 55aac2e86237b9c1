/// The planner in the background: one job at a time, for one schedule; internal.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "plan/solve/planning_job.hpp"

namespace spillway {

class PlanningJobs {
 public:
  [[nodiscard]] bool running() const noexcept { return job_ != nullptr; }
  /// Begins planning for the schedule of the question; what was being planned is not wanted any
  /// more. Returns whether there was a thread for it; else it is finished now.
  [[nodiscard]] bool start(PlanningJob::Question question);
  /// The answer is not wanted any more. Does not wait.
  void drop();

  /// Until a plan is known that fits, or until there is an answer.
  void wait_until_it_fits() const;
  /// Until there is an answer.
  void wait() const;

  struct Finished {
    PassSchedule schedule;
    PlanningJob::Answer answer;
  };
  /// The answer, if there is one.
  [[nodiscard]] std::optional<Finished> take_finished();
  /// Frees jobs that were dropped and have ended.
  void free_dropped();

 private:
  std::unique_ptr<PlanningJob> job_;
  PassSchedule schedule_;                              // Of job_.
  std::vector<std::unique_ptr<PlanningJob>> dropped_;  // Their answers are not wanted any more.
};

}  // namespace spillway
