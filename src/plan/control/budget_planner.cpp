#include "plan/control/budget_planner.hpp"

#include <algorithm>
#include <utility>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

/// If a recording step ends with this share of its peak less than it began with, its profile is too
/// far from later steps.
constexpr std::uint64_t kFreedShare = 100;

/// For parts that are copied out, of a plan with a budget.
Bytes small_window(const Profile& profile) {
  constexpr std::uint64_t kShare = 64;
  Bytes most;
  for (const ChunkProfile& chunk : profile.chunks) most = std::max(most, chunk.theoretical_peak);
  return Bytes(most.count() / kShare);
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an unknown error";
  }
}

}  // namespace

BudgetPlanner::BudgetPlanner(const ControllerOptions& options, ControlledSession& session,
                             StepModes& modes, CurrentPlan& current, TimeUpdates& times,
                             RecordingDelay& delay)
    : options_(options),
      session_(session),
      modes_(modes),
      current_(current),
      times_(times),
      delay_(delay),
      watch_(options.drift) {}

void BudgetPlanner::plan_for(Recording recording) {
  jobs_.drop();  // It plans for the last profile.
  recorded_schedule_ = std::move(recording.schedule);
  recorded_passes_ = std::move(recording.passes);
  current_.set_schedule(recording.announced.empty()
                            ? recorded_schedule_
                            : known_part(recording.announced, *current_.profile()));
  current_.cache().clear();
  times_.profile_replaced();
  watch_.profile_replaced();
  offload_until_planned();
  untimed_ = false;
  if (lacks_freed_memory(recording.peak)) {
    recorded_again_ = true;
    modes_.on(ModeEvent::kRecordingAsked);
    return session_.count_fallback(
        "memory from before the recording step was freed in it: recorded again");
  }
  start_planning();
}

void BudgetPlanner::stop() {
  jobs_.drop();
  problem_ = {};
  if (on_problem_ == OnProblem::kThrow) on_problem_ = OnProblem::kWarn;
}

void BudgetPlanner::take_answer() {
  if (untimed_ && delay_.is_over()) {
    untimed_ = false;
    modes_.on(ModeEvent::kRecordingAsked);
  }
  // Whether any plan fits is known long before the best one, and is not to be learned only after
  // many more steps.
  if (plans_ == 0 && on_problem_ == OnProblem::kThrow) jobs_.wait_until_it_fits();
  plan_or_stay([this] {
    take_finished_job();
    jobs_.free_dropped();
  });
  settle_problem();
}

void BudgetPlanner::choose_plan(const PassSchedule& schedule) {
  plan_or_stay([&] {
    if (const auto time = session_.take_step_time()) watch_.note_time(*time);
    const bool drifts = !watch_.drift(current_.plan().get()).empty();
    const Plan* const plan = current_.plan().get();
    // Under a plan that was given there may be nothing to plan from.
    const bool may_plan = plan != nullptr && current_.profile() != nullptr;
    if (may_plan && watch_.grow_reserve(*plan, jobs_.running())) start_planning();
    if (options_.replan && watch_.begins_to_drift(drifts)) {
      modes_.on(ModeEvent::kRecordingAsked);
    }
    switch_to_schedule(schedule);
  });
  settle_problem();
}

void BudgetPlanner::settle() {
  // Otherwise all ranks exchange the error first.
  if (problem_.error && !session_.ranks().together) throw_problem();
  const std::string warning = watch_.over_budget_warning(known_budget());
  if (!warning.empty()) session_.warn(warning);
}

void BudgetPlanner::plan_or_stay(const std::function<void()>& plan) {
  try {
    plan();
  } catch (...) {
    if (options_.strict) throw;
    session_.note_failure("planning");
    if (!jobs_.running()) watch_.reset_reserve();
  }
}

void BudgetPlanner::take_finished_job() {
  std::optional<PlanningJobs::Finished> finished = jobs_.take_finished();
  if (!finished) return;
  const PlanningJob::Answer& answer = finished->answer;
  if (finished->schedule == current_.schedule()) return take(answer);
  CachedPlan cached;
  cached.schedule = std::move(finished->schedule);
  if (answer.error) {
    cached.problem = {text_of(answer.error), answer.error, answer.plan};
  } else {
    ++plans_;
    cached.plan = answer.plan;
  }
  current_.cache().put(std::move(cached));
}

void BudgetPlanner::settle_problem() {
  if (!problem_.error) return;
  if (may_record_again()) {
    recorded_again_ = true;
    problem_.error = nullptr;
    modes_.on(ModeEvent::kRecordingAsked);
  } else if (!throws_problems()) {
    fall_back();
  }
}

bool BudgetPlanner::throws_problems() const noexcept {
  return options_.strict || on_problem_ == OnProblem::kThrow;
}

void BudgetPlanner::throw_problem() {
  if (on_problem_ == OnProblem::kThrow) on_problem_ = OnProblem::kWarn;
  std::rethrow_exception(std::exchange(problem_.error, nullptr));
}

void BudgetPlanner::fall_back() {
  const std::string problem = text_of(std::exchange(problem_.error, nullptr));
  const std::shared_ptr<const Plan> smallest = std::exchange(problem_.smallest, nullptr);
  if (smallest != nullptr) {
    adopt(*smallest);
    problem_.text = problem;
  } else {
    session_.count_fallback("no plan could be made: what can be offloaded is offloaded");
  }
  if (std::exchange(on_problem_, OnProblem::kCount) == OnProblem::kCount) return;
  session_.warn(problem + "; training continues " +
                (smallest != nullptr ? "under the plan with the smallest peak that was found, " +
                                           to_string(smallest->predicted_peak.value_or(Bytes(0)))
                                     : std::string("with everything offloaded that can be")) +
                ". Set `strict` to end it instead. The report counts further problems of the "
                "planner as fallbacks. This warning appears once per session.");
}

void BudgetPlanner::wait_for_plan() {
  jobs_.wait();
  take_finished_job();
  if (!problem_.error || !throws_problems()) return;
  // What the next step does about it does not change.
  if (session_.ranks().together || may_record_again()) std::rethrow_exception(problem_.error);
  throw_problem();
}

bool BudgetPlanner::may_record_again() const {
  // Ranks that plan together record together.
  if (plans_ > 0 || current_.profile() == nullptr || session_.ranks().together) return false;
  // What a first step allocates once and keeps (workspaces of libraries, tables, gradients) is in
  // its profile as if every step allocated it; what it frees of earlier memory, as if every step
  // freed it.
  return session_.allocated() != current_.profile()->fixed && !recorded_again_;
}

bool BudgetPlanner::lacks_freed_memory(Bytes device_peak) const {
  if (plans_ > 0 || session_.ranks().together || recorded_again_) return false;
  const Bytes start = current_.profile()->fixed;
  const Bytes freed = start - std::min(start, session_.allocated());
  const Bytes peak = device_peak - std::min(device_peak, start);
  return freed.count() > peak.count() / kFreedShare;
}

void BudgetPlanner::offload_until_planned() {
  problem_ = {};
  current_.adopt_interim();
}

void BudgetPlanner::switch_to_schedule(const PassSchedule& schedule) {
  const bool records = modes_.due(StepMode::kRecording);
  if (schedule.empty() || current_.profile() == nullptr || current_.is_given() || records) return;
  PassSchedule wanted = known_part(schedule, *current_.profile());
  if (!wanted.empty() && wanted != current_.schedule() &&
      !current_.switch_to(std::move(wanted), problem_)) {
    offload_until_planned();
  }
  // One job at a time: if another schedule is being planned, this one is planned after it.
  const bool needs_plan = modes_.due(StepMode::kInterim) && problem_.text.empty();
  if (needs_plan && !jobs_.running()) start_planning();
}

PlanningJob::Question BudgetPlanner::question() const {
  const Profile& profile = *current_.profile();
  PlanningConditions conditions = session_.conditions();
  PlanningJob::Question question;
  question.profile = current_.profile();
  question.budget = *options_.budget;
  question.reserve = watch_.reserve();
  question.room = conditions.device - std::min(conditions.device, profile.fixed);
  question.options.rules = options_.rules;
  Limits& limits = question.options.rules.limits;
  limits.host = std::min(limits.host.value_or(conditions.host), conditions.host);
  if (!limits.recompute_cache) limits.recompute_cache = options_.recompute_cache;
  question.options.schedule = current_.schedule();
  question.options.shard = session_.shard_model();
  if (session_.ranks().together) {
    // Sharded parts use these windows even where lists exist.
    if (!limits.offload_window)
      limits.offload_window = options_.offload_window.value_or(small_window(profile));
    if (!limits.prefetch_window)
      limits.prefetch_window = options_.prefetch_window.value_or(Bytes(0));
    question.options.equal = std::move(conditions.equal);
  }
  question.recorded = recorded_schedule_;
  question.passes = recorded_passes_;
  question.options.time_limit = options_.planning_time;
  return question;
}

void BudgetPlanner::start_planning() {
  const PlanningRanks ranks = session_.ranks();
  if (ranks.together && !ranks.first) return;
  const auto is_timed = [](const ChunkProfile& chunk) { return !chunk.timeline.empty(); };
  // Ranks that plan together hear of it from the first one.
  if (!std::ranges::all_of(current_.profile()->chunks, is_timed) && !ranks.together) {
    if (std::exchange(untimed_, true)) return;
    session_.count_fallback(
        "the recorded passes ran within each other, so they have no times: recorded again");
    return delay_.begin();
  }
  PlanningJob::Question asked = question();
  if (!options_.plan_in_background) {
    jobs_.drop();
    take(PlanningJob::plan(asked));
  } else if (!jobs_.start(std::move(asked))) {
    session_.count_fallback("no thread for the planner: a step waited for it");
  }
}

void BudgetPlanner::take(const PlanningJob::Answer& answer) {
  if (answer.budget > Bytes(0)) budget_ = answer.budget;
  // Do not grow it again: the rest of the budget would be too small.
  if (!answer.reserve_fits) watch_.reserve_does_not_fit();
  if (!answer.error) return adopt(*answer.plan);
  if (!modes_.due(StepMode::kInterim)) {
    watch_.reset_reserve();
    return session_.count_fallback("replanning failed: the current plan stays");
  }
  problem_ = {text_of(answer.error), answer.error, answer.plan};
}

void BudgetPlanner::adopt(const Plan& plan) {
  problem_.text.clear();
  modes_.on(ModeEvent::kPlanAdopted);
  // Better times do not make a plan fit.
  const bool times = times_.wanted() && fits(plan);
  modes_.on(times ? ModeEvent::kTimesAsked : ModeEvent::kTimesNotNeeded);
  times_.plan_replaced();
  ++plans_;
  watch_.plan_made();
  if (on_problem_ == OnProblem::kThrow) on_problem_ = OnProblem::kWarn;
  current_.adopt(plan);
  if (fits(plan)) return;
  problem_.text = "[plan] no plan fits " + to_string(*plan.budget) +
                  ": the smallest peak found is " + to_string(*plan.predicted_peak);
  session_.count_fallback("no plan fits the budget: the one with the smallest peak is executed");
}

Bytes BudgetPlanner::known_budget() const {
  const Plan* const plan = current_.plan().get();
  if (plan != nullptr && plan->budget) return *plan->budget;
  return options_.budget->is_bytes() ? options_.budget->resolve({}, {}) : budget_;
}

BudgetReport BudgetPlanner::report() const {
  const Plan* const plan = current_.plan().get();
  BudgetReport report;
  watch_.report(report, plan);
  report.budget = known_budget();
  report.plans = plans_;
  report.problem = problem_.text;
  report.planned = plan != nullptr && plan->budget && !modes_.due(StepMode::kInterim);
  if (!report.planned) return report;
  report.predicted_peak = plan->predicted_peak.value_or(Bytes(0));
  report.predicted_step = Nanoseconds(plan->predicted_step_ns.value_or(0));
  report.base_step = Nanoseconds(plan->base_step_ns.value_or(0));
  report.bound_step = Nanoseconds(plan->bound_step_ns.value_or(0));
  return report;
}

}  // namespace spillway
