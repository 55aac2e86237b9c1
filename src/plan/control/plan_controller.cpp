#include "plan/control/plan_controller.hpp"

#include <utility>

#include "spillway/plan/compute_times.hpp"
#include "spillway/plan/rules.hpp"

namespace spillway {

PlanController::PlanController(ControllerOptions options, ControlledSession& session)
    : options_(std::move(options)),
      session_(session),
      host_use_(options_.verify_every, options_.prepare),
      current_(modes_, session, options_.recompute_cache,
               [this] {
                 budget_.watch().plan_replaced();
                 host_use_.plan_adopted();
                 session_.plan_adopted();
               }),
      budget_(options_, session, modes_, current_, times_, delay_) {}

void PlanController::ask_to_record() {
  record_again();
  asked_.cause = RecordingCause::kAsked;
}

void PlanController::note_unknown_saves() {
  if (records_next() || !delay_.is_over()) return;
  record_again();
  asked_.cause = RecordingCause::kUnknownSaves;
  delay_.begin();
}

void PlanController::use_plan(Plan plan) {
  current_.give(std::move(plan));
  budget_.stop();
  modes_.on(ModeEvent::kTimesNotNeeded);
  (void)current_.adopt_given();
}

void PlanController::adopt_shared(const Plan& plan) {
  budget_.adopt(plan);
  modes_.on(ModeEvent::kTimesNotNeeded);  // Only the first rank plans by times.
}

void PlanController::prepare(const PassSchedule& schedule) {
  budget_.take_answer();
  if (!budget_.problem().error) {
    budget_.plan_or_stay([this] { update_times(/*wait=*/false); });
    budget_.choose_plan(schedule);
  }
  budget_.settle();
}

bool PlanController::verification_is_due() const noexcept {
  const bool regular = options_.verify_every > 0 &&
                       (steps() + 1) % static_cast<std::uint64_t>(options_.verify_every) == 0;
  return (modes_.due(StepMode::kVerifying) || asked_.verification || regular) && !records_next();
}

void PlanController::begin_step(const StepNeeds& needs) {
  const bool verifies = verification_is_due();
  before_ = {modes_, asked_};
  step_ = {};
  step_.mode = modes_.begin((verifies && needs.recomputes) || needs.compares_ranks);
  step_.cause = std::exchange(asked_.cause, RecordingCause::kAsked);
  step_.traces = std::exchange(asked_.trace, false);
  if (!step_.records()) asked_.verification = false;
  step_.checks_copies = step_.records() || verifies;
  step_.measures = step_.mode == StepMode::kSteady && options_.budget && current_.plan() != nullptr;
  // A plan that was not made here may be of another model: types alone do not tell.
  const bool unknown_plan = verifies && current_.plan() != nullptr && current_.profile() == nullptr;
  // Ranks compare what they save: sizes alone do not distinguish buffers. Nor do they where some
  // are kept because of what is done to them.
  step_.signs_saves = step_.records() || step_.times() || step_.traces || needs.recomputes ||
                      needs.identifies || needs.shards || needs.compares_ranks || unknown_plan;
  if (step_.records()) times_.recording_begins();
  if (step_.times()) timed_step_ = steps() + 1;
}

void PlanController::cancel_step() noexcept {
  step_ = {};
  if (!before_) return;
  modes_ = before_->modes;
  asked_ = before_->asked;
  before_.reset();
}

StepKind PlanController::kind_of_step(bool as_profiled, bool traced) const noexcept {
  if (step_.records()) return StepKind::kRecording;
  if (current_.plan() == nullptr || modes_.due(StepMode::kInterim)) return StepKind::kUnplanned;
  if (!as_profiled) return StepKind::kDiverged;
  if (step_.verifies()) return StepKind::kVerification;
  return traced ? StepKind::kTraced : StepKind::kPlanned;
}

void PlanController::note_measured(const MeasuredStep& step) {
  if (options_.budget) budget_.watch().step_ended(step, current_.plan().get());
}

BudgetReport PlanController::report() {
  if (const auto time = session_.take_step_time()) budget_.watch().note_time(*time);
  return budget_.report();
}

void PlanController::note_timed(std::vector<TimedPass> passes) {
  for (TimedPass& pass : passes) times_.add(std::move(pass));
  if (options_.plan_in_background) return;
  budget_.plan_or_stay([this] { update_times(/*wait=*/true); });
}

void PlanController::end_step() noexcept {
  step_ = {};
  before_.reset();
}

std::optional<Bytes> PlanController::host_memory_to_keep(const StepTask& step, Bytes reach,
                                                         Bytes pinned) {
  const bool planned = current_.plan() != nullptr && !modes_.due(StepMode::kInterim);
  const bool replans =
      budget_.is_planning() || modes_.due(StepMode::kTiming) || times_.any_unread();
  const bool regular = !step.verifies() || options_.verify_every > 0;
  return host_use_.step_ended(
      {.steady = planned && !replans && !step.records() && !records_next() && regular,
       .verified = step.verifies(),
       .reach = reach,
       .pinned = pinned});
}

bool PlanController::adopt_recording(Recording recording) {
  current_.set_profile(std::move(recording.profile));
  if (current_.adopt_given()) return false;
  if (!options_.budget) {
    plan_by_rules(std::move(recording));
    return true;
  }
  budget_.plan_for(std::move(recording));
  return false;
}

void PlanController::plan_by_rules(Recording recording) {
  const Profile& profile = *current_.profile();
  Plan plan = make_plan(profile, options_.rules);
  modes_.on(ModeEvent::kPlanAdopted);
  current_.adopt(std::move(plan));
  current_.cache().clear();
  const Limits& limits = current_.plan()->limits;
  const bool given = options_.offload_window || options_.prefetch_window || limits.offload_window ||
                     limits.prefetch_window;
  if (!given) {
    times_.profile_replaced();
    modes_.on(has_times(profile) ? ModeEvent::kTimesAsked : ModeEvent::kTimesNotNeeded);
  }
  current_.set_schedule(recording.announced.empty() ? std::move(recording.schedule)
                                                    : known_part(recording.announced, profile));
}

void PlanController::update_times(bool wait) {
  if (!read_times(wait)) return;
  if (options_.budget) return budget_.start_planning();
  current_.cache().clear();
  session_.renew_lists();
}

bool PlanController::read_times(bool wait) {
  if (!times_.any_unread() || (!wait && !session_.have_times_happened())) return false;
  std::vector<TimedPass> just_timed = times_.take_unread();
  if (!session_.resolve_times()) return false;
  times_.add_read(std::move(just_timed));
  if (!times_.enough(*current_.profile())) {
    modes_.on(ModeEvent::kTimesAsked);
    return false;
  }
  std::optional<Profile> fresh = with_times(*current_.profile(), times_.take_update());
  if (!fresh) return false;
  const Plan* const plan = current_.plan().get();
  if (plan != nullptr) *fresh = without_slowing(*fresh, *plan, simulated_as_now());
  const bool other_times = have_other_times(*current_.profile(), *fresh);
  const std::optional<CopyWaits> waits = session_.copy_waits(timed_step_);
  const bool slower =
      waits && plan != nullptr && slow_link(*fresh, *plan, *waits, simulated_as_now());
  current_.set_profile(std::move(*fresh));
  return slower || other_times;
}

SimulateOptions PlanController::simulated_as_now() const {
  SimulateOptions options;
  options.schedule = current_.schedule();
  options.shard = session_.shard_model();
  return options;
}

}  // namespace spillway
