/// Planning for a budget: when the planner runs, and what follows from its answers; internal.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "plan/control/budget_watch.hpp"
#include "plan/control/controlled_session.hpp"
#include "plan/control/controller_options.hpp"
#include "plan/control/current_plan.hpp"
#include "plan/control/planning_jobs.hpp"
#include "plan/control/recording_delay.hpp"
#include "plan/control/step_modes.hpp"
#include "plan/control/time_updates.hpp"

namespace spillway {

/// What a recording step showed.
struct Recording {
  Profile profile;
  PassSchedule schedule;             ///< The order of its passes.
  PassSchedule announced;            ///< If it was announced, and was kept to; else empty.
  std::vector<RecordedPass> passes;  ///< As PlanningJob::Question::passes.
  Bytes peak;                        ///< Allocated at most.
};

class BudgetPlanner {
 public:
  /// All of them must outlive this object.
  BudgetPlanner(const ControllerOptions& options, ControlledSession& session, StepModes& modes,
                CurrentPlan& current, TimeUpdates& times, RecordingDelay& delay);

  /// Plans for the profile that has just been recorded; until there is a plan, everything is
  /// offloaded.
  void plan_for(Recording recording);
  /// A plan was given.
  void stop();

  // Before a step, in this order.
  /// Takes the planner's answer, if there is one.
  void take_answer();
  /// Replans where measurements say so, and switches to the plan for the schedule.
  void choose_plan(const PassSchedule& schedule);
  /// Throws what the planner found wrong, if the step is to end with it; else warns.
  void settle();

  /// Without SessionOptions::strict, counts what goes wrong and continues under the present plan.
  void plan_or_stay(const std::function<void()>& plan);
  void start_planning();
  [[nodiscard]] bool is_planning() const noexcept { return jobs_.running(); }
  /// As Session::wait_for_plan().
  void wait_for_plan();
  /// Why there is no plan that fits.
  [[nodiscard]] PlanningProblem& problem() noexcept { return problem_; }
  [[noreturn]] void throw_problem();
  void adopt(const Plan& plan);

  [[nodiscard]] BudgetWatch& watch() noexcept { return watch_; }
  [[nodiscard]] BudgetReport report() const;
  /// As far as it is known; else 0.
  [[nodiscard]] Bytes known_budget() const;

 private:
  /// What happens if no plan is found, without SessionOptions::strict.
  enum class OnProblem {
    kThrow,  // Until a plan is adopted or an error was thrown.
    kWarn,   // The first time after that.
    kCount,
  };

  [[nodiscard]] PlanningJob::Question question() const;
  /// Takes the answer of the planner in the background, if it is done.
  void take_finished_job();
  void take(const PlanningJob::Answer& answer);
  /// Whether the step that begins throws the planner's error.
  [[nodiscard]] bool throws_problems() const noexcept;
  /// Records again or continues without a plan that fits, where the error is not to be thrown.
  void settle_problem();
  /// Continues without a plan that fits.
  void fall_back();
  void offload_until_planned();
  void switch_to_schedule(const PassSchedule& schedule);
  /// Whether the profile that no plan fits may include what the first step allocated or freed once.
  [[nodiscard]] bool may_record_again() const;
  /// Whether the recording step that has just ended freed so much memory from before it (garbage,
  /// an earlier model) that its peaks, which are above that memory, say nothing of later steps.
  [[nodiscard]] bool lacks_freed_memory(Bytes device_peak) const;
  const ControllerOptions& options_;
  ControlledSession& session_;
  StepModes& modes_;
  CurrentPlan& current_;
  TimeUpdates& times_;
  RecordingDelay& delay_;
  BudgetWatch watch_;
  PlanningJobs jobs_;
  PlanningProblem problem_;
  OnProblem on_problem_ = OnProblem::kThrow;
  PassSchedule recorded_schedule_;
  std::vector<RecordedPass> recorded_passes_;  // If the recording step had several.
  bool untimed_ = false;         // No plan can be made for the profile: it has no times.
  bool recorded_again_ = false;  // Because no plan fitted the first profile.
  std::uint64_t plans_ = 0;
  Bytes budget_;  // As the planner resolved it; 0: not yet.
};

}  // namespace spillway
