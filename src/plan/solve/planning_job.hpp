/// A planning job on a thread of its own; internal.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "plan/simulate/later_passes.hpp"
#include "spillway/core/process.hpp"
#include "spillway/plan/budget.hpp"
#include "spillway/plan/planner.hpp"

namespace spillway {

class PlanningJob {
 public:
  struct Question {
    std::shared_ptr<const Profile> profile;
    Budget budget{Bytes(0)};
    Bytes room;                        ///< For an automatic budget.
    Bytes reserve;                     ///< Part of the budget that the plan may not use.
    PassSchedule recorded;             ///< The order of passes in the recording step.
    std::vector<RecordedPass> passes;  ///< These passes; empty if the profile has them.
    PlannerOptions options;            ///< Its budget is filled in.
  };
  struct Answer {
    std::optional<PlannedStep> planned;
    std::exception_ptr error;  ///< Instead.
  };

  explicit PlanningJob(Question question);
  PlanningJob(const PlanningJob&) = delete;
  PlanningJob& operator=(const PlanningJob&) = delete;
  /// Waits for the planner, which keeps to its time limit; in a child made by fork() it does not.
  ~PlanningJob();

  [[nodiscard]] bool done() const noexcept { return done_; }
  /// Precondition: done().
  [[nodiscard]] const Answer& answer() const noexcept { return answer_; }

  /// The same on this thread.
  [[nodiscard]] static Answer plan(const Question& question);

 private:
  std::atomic<bool> done_ = false;
  Answer answer_;
  ProcessOwned<std::thread> thread_;
};

}  // namespace spillway
