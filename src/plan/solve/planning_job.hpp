/// A planning job on a thread of its own; internal.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
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
    Bytes reserve;                     ///< As PlannerOptions::reserve.
    PassSchedule recorded;             ///< The order of passes in the recording step.
    std::vector<RecordedPass> passes;  ///< These passes; empty if the profile has them.
    PlannerOptions options;            ///< Its budget, reserve and callbacks are filled in.
  };
  struct Answer {
    /// The plan; with `error`, the one with the smallest peak that was found.
    std::shared_ptr<const Plan> plan;
    std::exception_ptr error;  ///< PlanInfeasible; another one if there is no plan at all.
    Bytes budget;              ///< In bytes; 0 if an error came before.
    bool reserve_fits = true;  ///< False: no plan leaves all of the reserve free.
  };

  /// Where no thread can be had, as under a limit on them, plans on this one: it is done() then.
  explicit PlanningJob(Question question);
  PlanningJob(const PlanningJob&) = delete;
  PlanningJob& operator=(const PlanningJob&) = delete;
  /// Ends the search and waits for the planner, which looks at that as often as at its time limit;
  /// in a child made by fork() it does not.
  ~PlanningJob();

  /// Whether it runs, or ran, on a thread of its own.
  [[nodiscard]] bool has_thread() const noexcept { return thread_->joinable(); }
  [[nodiscard]] bool done() const;
  /// Waits until done().
  void wait() const;
  /// Waits until a plan is known that fits, or until done().
  void wait_until_it_fits() const;
  /// Ends the search soon; the answer is of no use then.
  void cancel();
  /// Precondition: done().
  [[nodiscard]] const Answer& answer() const noexcept { return answer_; }

  /// The same on this thread.
  [[nodiscard]] static Answer plan(const Question& question);

 private:
  enum class State { kSearching, kFits, kDone };  // In this order; kFits may be left out.

  void advance(State state);
  void wait_for(State state) const;

  mutable std::mutex mutex_;
  mutable ProcessOwned<std::condition_variable> advanced_;
  State state_ = State::kSearching;
  bool cancelled_ = false;
  Answer answer_;
  ProcessOwned<std::thread> thread_;
};

}  // namespace spillway
