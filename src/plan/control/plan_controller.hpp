/// Decides what each step of a session does, and under which plan; internal.
///
/// It owns the profile, the plan and how they come about: what is asked for, plans for other
/// schedules, the planner in the background, what was measured. At the begin of a step the session
/// asks it what the step does; at the end it tells it what happened. Under the session's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "plan/control/budget_planner.hpp"
#include "plan/control/controlled_session.hpp"
#include "plan/control/controller_options.hpp"
#include "plan/control/current_plan.hpp"
#include "plan/control/host_use.hpp"
#include "plan/control/recording_delay.hpp"
#include "plan/control/step_modes.hpp"
#include "plan/control/time_updates.hpp"

namespace spillway {

/// Why a step records.
enum class RecordingCause {
  kAsked,         ///< There is no profile, or it is out of date.
  kUnknownSaves,  ///< A pass saved tensors that the profile does not have.
};

/// What a step does.
struct StepTask {
  StepMode mode = StepMode::kSteady;
  RecordingCause cause = RecordingCause::kAsked;  ///< Of a recording step.
  bool checks_copies = false;                     ///< Compares offloaded buffers by digests.
  bool signs_saves = false;                       ///< Matches what is saved by signatures.
  bool traces = false;
  bool measures = false;  ///< Its time is compared with the prediction.

  [[nodiscard]] bool records() const noexcept { return mode == StepMode::kRecording; }
  [[nodiscard]] bool verifies() const noexcept { return mode == StepMode::kVerifying; }
  [[nodiscard]] bool times() const noexcept { return mode == StepMode::kTiming; }
};

/// What the plan and the ranks make necessary in the step that begins.
struct StepNeeds {
  bool recomputes = false;      ///< The plan recomputes anything.
  bool identifies = false;      ///< The plan keeps something because of what is done to it.
  bool shards = false;          ///< The ranks shard in this step.
  bool compares_ranks = false;  ///< The ranks verify that what is to be sharded is equal.
};

class PlanController {
 public:
  PlanController(ControllerOptions options, ControlledSession& session);
  PlanController(const PlanController&) = delete;
  PlanController& operator=(const PlanController&) = delete;

  [[nodiscard]] CurrentPlan& current() noexcept { return current_; }
  [[nodiscard]] const CurrentPlan& current() const noexcept { return current_; }
  [[nodiscard]] BudgetPlanner& budget() noexcept { return budget_; }
  /// What is due in the next step, as far as it is known.
  [[nodiscard]] const StepModes& due() const noexcept { return modes_; }
  [[nodiscard]] bool records_next() const noexcept { return modes_.due(StepMode::kRecording); }
  /// What the step that is under way does.
  [[nodiscard]] const StepTask& step() const noexcept { return step_; }
  /// How many steps have ended.
  [[nodiscard]] std::uint64_t steps() const noexcept { return delay_.steps(); }

  // What is asked for the next step.
  void ask_to_record();
  /// Whichever plan the step executes.
  void ask_to_verify() noexcept { asked_.verification = true; }
  void ask_to_trace() noexcept { asked_.trace = true; }
  /// The profile is of no use, or there is none; for whatever cause.
  void record_again() { modes_.on(ModeEvent::kRecordingAsked); }
  /// A verification of the current plan said nothing about some buffers.
  void verify_again() { modes_.on(ModeEvent::kVerificationAsked); }
  /// A pass saved tensors that the profile does not have. The first times the next step records,
  /// then later and later ones.
  void note_unknown_saves();
  /// As Session::use_plan().
  void use_plan(Plan plan);
  /// A plan that another rank has made for all.
  void adopt_shared(const Plan& plan);

  // A step begins: first its plan, then, after the ranks have agreed, what it does.
  /// With a budget: takes the planner's answer, replans where measurements say so, and switches to
  /// the plan for the schedule.
  /// Errors: as Session::step().
  void prepare(const PassSchedule& schedule);
  /// Whether the step that begins verifies what there is to verify; not if it records.
  [[nodiscard]] bool verification_is_due() const noexcept;
  void begin_step(const StepNeeds& needs);
  /// The step could not begin: what it was to do is asked for again.
  void cancel_step() noexcept;

  // A step ends.
  void count_step() noexcept { delay_.count_step(); }
  /// `as_profiled`: its passes were those of the plan's profile, in the announced order.
  [[nodiscard]] StepKind kind_of_step(bool as_profiled, bool traced) const noexcept;
  void note_measured(const MeasuredStep& step);
  [[nodiscard]] BudgetReport report();
  /// Of the timed step; its times are read when the device has finished it, or now.
  void note_timed(std::vector<TimedPass> passes);
  void end_step() noexcept;
  /// After end_step(). `step`: what it did; `reach`: the host memory that it used. Returns how much
  /// pinned host memory to keep; empty: all of it.
  [[nodiscard]] std::optional<Bytes> host_memory_to_keep(const StepTask& step, Bytes reach,
                                                         Bytes pinned);
  /// After a recording step: adopts the plan that was given, or the rules' plan, or plans for the
  /// budget. Returns whether the plan is by rules, and is to get residency lists.
  [[nodiscard]] bool adopt_recording(Recording recording);
  /// Updates the profile by the times of the timed steps, if the device has finished them, and
  /// replans if they differ. `wait`: waits for the device.
  void update_times(bool wait);

 private:
  void plan_by_rules(Recording recording);
  /// Returns whether the profile has other times than before.
  [[nodiscard]] bool read_times(bool wait);
  [[nodiscard]] SimulateOptions simulated_as_now() const;

  /// What the program asks for the next step; a step that begins uses it up.
  struct Asked {
    bool verification = false;
    bool trace = false;
    RecordingCause cause = RecordingCause::kAsked;  // Where a recording is due.
  };
  struct Before {
    StepModes modes;
    Asked asked;
  };

  ControllerOptions options_;
  ControlledSession& session_;
  StepModes modes_;
  Asked asked_;
  StepTask step_;
  std::optional<Before> before_;  // What was due before the step that is under way.
  RecordingDelay delay_;
  TimeUpdates times_;
  std::uint64_t timed_step_ = 0;  // Counted from 1.
  HostUse host_use_;
  CurrentPlan current_;
  BudgetPlanner budget_;
};

}  // namespace spillway
