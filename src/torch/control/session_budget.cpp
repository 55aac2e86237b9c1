#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "plan/control/time_updates.hpp"
#include "plan/profile/timeline.hpp"
#include "spillway/core/error.hpp"
#include "spillway/core/numbers.hpp"
#include "spillway/plan/compute_times.hpp"
#include "spillway/plan/simulate.hpp"
#include "torch/execute/session_core.hpp"
#include "torch/hooks/error_text.hpp"

namespace spillway {
namespace {

/// A smaller change of the measured times is not worth replanning.
constexpr double kSameTimes = 0.02;
/// How often timed steps update the profile. The recording step is slowed by the host, and a step
/// that waits for copies runs at higher clocks than one that does not: times hold only for plans
/// close to the one they were measured under.
constexpr int kMaxTimeUpdates = 3;
/// Passes of each chunk that are timed for an update, except for the first one, which replaces the
/// times of the recording step at once: the clock of a device at its power limit varies from step
/// to step.
constexpr int kTimedPasses = 4;
/// If a recording step ends with this share of its peak less than it began with, its profile is too
/// far from later steps.
constexpr std::uint64_t kFreedShare = 100;
/// How often the session replans because a measured peak was over the budget.
constexpr int kMaxCorrections = 3;

/// For parts that are copied out, of a plan with a budget.
Bytes small_window(const Profile& profile) {
  constexpr std::uint64_t kShare = 64;
  Bytes most;
  for (const ChunkProfile& chunk : profile.chunks) most = std::max(most, chunk.theoretical_peak);
  return Bytes(most.count() / kShare);
}

double total_ns(const Profile& profile) {
  double total = 0;
  for (const ChunkProfile& chunk : profile.chunks) {
    total += static_cast<double>(chunk.forward_ns + chunk.backward_ns);
  }
  return total;
}

/// Whether it is predicted to keep to its budget.
bool fits(const Plan& plan) {
  return !plan.budget || plan.predicted_peak.value_or(Bytes(0)) <= *plan.budget;
}

/// Whether such a step may have more than the plan allows.
bool may_be_over_budget(StepKind kind) {
  switch (kind) {
    case StepKind::kRecording:
    case StepKind::kUnplanned:
    case StepKind::kDiverged:
      return true;
    case StepKind::kVerification:
    case StepKind::kTraced:
    case StepKind::kPlanned:
      return false;
  }
  return false;
}

/// "the peak is 8.0 GiB, 14.2 % more than predicted"; nothing within `share`.
std::optional<std::string> drift_of(const std::string& what, double measured, double predicted,
                                    double share) {
  if (predicted <= 0) return std::nullopt;
  const double off = measured / predicted - 1;
  if (std::abs(off) <= share) return std::nullopt;
  return what + ", " + with_decimals(100 * std::abs(off), 1) +
         (off > 0 ? " % more than predicted" : " % less than predicted");
}

}  // namespace

void SessionCore::begin_budgeted_step(const PassSchedule& schedule) {
  if (budgeting_.untimed && steps_ >= record_after_) {
    budgeting_.untimed = false;
    record_next_ = true;
  }
  // Whether any plan fits is known long before the best one, and is not to be learned only after
  // many more steps.
  const bool first = budgeting_.plans == 0 && budgeting_.on_problem == OnProblem::kThrow;
  if (first && job_ != nullptr) job_->wait_until_it_fits();
  plan_or_stay([this] {
    take_finished_job();
    std::erase_if(old_jobs_, [](const auto& job) { return job->done(); });
  });
  settle_problem();
  if (!budgeting_.error) {
    plan_or_stay([this] { read_times(/*wait=*/false); });
    plan_or_stay([&] {
      update_drift();
      keep_within_budget();
      if (budgeting_.drift.empty()) {
        budgeting_.as_predicted = true;
      } else if (options_.replan && std::exchange(budgeting_.as_predicted, false)) {
        record_next_ = true;
      }
      switch_to_schedule(schedule);
    });
    settle_problem();
  }
  // Otherwise all ranks exchange the error first.
  if (budgeting_.error && !plans_together()) throw_problem();
  warn_over_budget();
}

void SessionCore::plan_or_stay(const std::function<void()>& plan) {
  try {
    plan();
  } catch (...) {
    if (options_.strict) throw;
    note_failure("planning");
    if (job_ == nullptr) budgeting_.reserve = budgeting_.planned_reserve;
  }
}

void SessionCore::take_finished_job() {
  if (job_ == nullptr || !job_->done()) return;
  const std::unique_ptr<PlanningJob> job = std::move(job_);
  if (job_schedule_ == schedule_) {
    take_answer(job->answer());
  } else {
    cache_answer(job->answer());
  }
}

void SessionCore::settle_problem() {
  if (!budgeting_.error) return;
  if (may_record_again()) {
    budgeting_.recorded_again = true;
    budgeting_.error = nullptr;
    record_next_ = true;
  } else if (!throws_problems()) {
    fall_back();
  }
}

void SessionCore::throw_problem() {
  if (budgeting_.on_problem == OnProblem::kThrow) budgeting_.on_problem = OnProblem::kWarn;
  std::rethrow_exception(std::exchange(budgeting_.error, nullptr));
}

void SessionCore::fall_back() {
  const std::string problem = text_of(std::exchange(budgeting_.error, nullptr));
  const std::shared_ptr<const Plan> smallest = std::exchange(budgeting_.smallest, nullptr);
  if (smallest != nullptr) {
    take_plan(*smallest);
    budgeting_.problem = problem;
  } else {
    count_fallback("no plan could be made: what can be offloaded is offloaded");
  }
  if (std::exchange(budgeting_.on_problem, OnProblem::kCount) == OnProblem::kCount) return;
  TORCH_WARN(problem, "; training continues ",
             smallest != nullptr ? "under the plan with the smallest peak that was found, " +
                                       to_string(smallest->predicted_peak.value_or(Bytes(0)))
                                 : std::string("with everything offloaded that can be"),
             ". Set `strict` to end it instead. The report counts further problems of the planner "
             "as fallbacks. This warning appears once per session.");
}

void SessionCore::wait_for_plan() {
  const std::lock_guard lock(mutex_);
  if (in_step()) throw InvalidArgument("plan", "a step is under way; end it first");
  if (job_ != nullptr) job_->wait();
  take_finished_job();
  if (!budgeting_.error || !throws_problems()) return;
  // What the next step does about it does not change.
  if (plans_together() || may_record_again()) std::rethrow_exception(budgeting_.error);
  throw_problem();
}

bool SessionCore::may_record_again() const {
  // Ranks that plan together record together.
  if (budgeting_.plans > 0 || profile_ == nullptr || plans_together()) return false;
  // What a first step allocates once and keeps (workspaces of libraries, tables, gradients) is in
  // its profile as if every step allocated it; what it frees of earlier memory, as if every step
  // freed it.
  return device_->allocated() != profile_->fixed && !budgeting_.recorded_again;
}

bool SessionCore::lacks_freed_memory() const {
  if (budgeting_.plans > 0 || plans_together() || budgeting_.recorded_again) return false;
  const std::size_t start = profile_->fixed.count();
  const std::size_t freed = start - std::min(start, device_->allocated().count());
  const std::size_t peak = step_.device_peak.count() - std::min(step_.device_peak.count(), start);
  return freed > peak / kFreedShare;
}

void SessionCore::keep_within_budget() {
  if (plan_ == nullptr || !plan_->budget || !fits(*plan_)) return;
  const Bytes peak = budgeting_.measured_peak;
  const Bytes excess = std::max(peak - std::min(peak, *plan_->budget),
                                std::exchange(budgeting_.excess_of_others, {}));
  if (excess == Bytes(0) || job_ != nullptr || budgeting_.corrected >= kMaxCorrections) return;
  // The allocator may round requests up, and sizes may change.
  ++budgeting_.corrected;
  budgeting_.reserve += excess;
  start_planning();
}

void SessionCore::warn_over_budget() {
  const Bytes budget = known_budget();
  if (budgeting_.warned_peak || budget == Bytes(0)) return;
  std::string steps;
  for (const auto& [kind, of_kind] : budgeting_.steps) {
    if (!may_be_over_budget(kind) || of_kind.peak <= budget) continue;
    steps += (steps.empty() ? "" : ", ") + std::string(to_string(kind)) + " steps: up to " +
             to_string(of_kind.peak);
  }
  if (steps.empty()) return;
  budgeting_.warned_peak = true;
  TORCH_WARN("[budget] steps had more than the budget of ", to_string(budget), " (", steps,
             "): no plan holds for such steps. The report has their number and their peaks. This "
             "warning appears once per session.");
}

void SessionCore::begin_measuring() {
  const bool measurable = plan_ != nullptr && !budgeting_.unplanned && !recording_ && !verifying_;
  budgeting_.timing = measurable && (options_.budget || fitting_.enabled) &&
                      std::exchange(budgeting_.time_next, false);
  budgeting_.measuring = measurable && options_.budget && !budgeting_.timing;
  if (budgeting_.timing) budgeting_.timed_step = steps_ + 1;
  if (recording_) {
    timed_passes_.clear();
    read_passes_.clear();
    budgeting_.timed_steps = 0;
  }
  if (budgeting_.measuring) step_time_.begin();
}

bool SessionCore::is_as_profiled(bool complete) const {
  const bool in_order = complete && (follower_.on_schedule() || follower_.schedule().empty());
  bool any = false;
  for (const auto& pass : passes_) {
    if (pass->layout == nullptr && !idle_chunks_.contains(pass->key.chunk)) return false;
    if (pass->match != Match::kAsProfiled) return false;
    if (pass->layout != nullptr && pass->backward_begun && !pass->as_profiled()) return false;
    any = any || pass->backward_begun;
  }
  return in_order && any;
}

StepKind SessionCore::kind_of_step(bool complete) const {
  if (recording_) return StepKind::kRecording;
  if (plan_ == nullptr || budgeting_.unplanned) return StepKind::kUnplanned;
  if (!is_as_profiled(complete)) return StepKind::kDiverged;
  if (verifying_) return StepKind::kVerification;
  return tracing_ != nullptr ? StepKind::kTraced : StepKind::kPlanned;
}

void SessionCore::end_measuring(bool complete) {
  const Bytes peak = step_.device_peak - std::min(step_.device_peak, step_start_);
  const StepKind kind = kind_of_step(complete);
  measured_ = MeasuredStep{steps_, kind, step_start_, peak};
  if (budgeting_.measuring) {
    step_time_.end();
    if (kind != StepKind::kPlanned) step_time_.discard();
  }
  if (options_.budget) {
    StepPeak& all = budgeting_.steps[kind];
    ++all.steps;
    all.peak = std::max(all.peak, peak);
    if (kind == StepKind::kVerification) budgeting_.verification_peak = peak;
    if (kind == StepKind::kPlanned) {
      ++budgeting_.measured_steps;
      budgeting_.measured_peak = peak;
    }
    const bool counts =
        kind == StepKind::kPlanned || kind == StepKind::kTraced || kind == StepKind::kDiverged;
    if (counts && plan_->budget && peak > *plan_->budget) ++budgeting_.over_budget_steps;
  }
  if (!std::exchange(budgeting_.timing, false)) return;
  for (const auto& pass : passes_) {
    if (!pass->moments->backward || !pass->as_profiled() || !pass->moments->in_order) continue;
    const ChunkProfile* const chunk = recorded_chunk(pass->key.chunk);
    if (chunk == nullptr) continue;
    StepClock::end_of(*pass->moments);
    timed_passes_.push_back({pass->key.chunk, match_calls(*chunk, calls_of(*pass)), pass->moments});
  }
  if (!options_.plan_in_background) plan_or_stay([this] { read_times(/*wait=*/true); });
}

std::optional<MeasuredStep> SessionCore::last_step() const {
  const std::lock_guard lock(mutex_);
  return measured_;
}

const ChunkProfile* SessionCore::recorded_chunk(int number) const {
  for (const ChunkProfile& chunk : profile_->chunks) {
    if (chunk.chunk == number) return &chunk;
  }
  return nullptr;
}

std::vector<PassCall> SessionCore::calls_of(const Pass& pass) const {
  std::vector<PassCall> calls;
  for (CallId id = 0; book_ != nullptr && id < book_->calls(); ++id) {
    const Call& call = book_->call(id);
    if (call.pass != pass.number) continue;
    calls.push_back({call.number, call.traits->name, call.saves, call.ordinal});
  }
  return calls;
}

void SessionCore::plan_for_budget(PassSchedule schedule) {
  recorded_schedule_ = std::move(schedule);
  recorded_passes_.clear();
  for (const auto& pass : passes_) {
    const bool complete =
        pass->profiler != nullptr && pass->moments->backward && pass->moments->in_order;
    const ChunkProfile* const chunk = recorded_chunk(pass->key.chunk);
    if (!complete || chunk == nullptr || recorded_schedule_.size() <= 2) continue;
    std::vector<Moment> moments = recorded_moments(*pass->moments);
    // Where sizes change, a step may allocate more than any profiled pass. Without remapping, calls
    // that differ only in their number leave room for that: one value is counted at two positions.
    if (pass->profiler->has_sizes_of(*chunk)) {
      moments = remapped(moments, match_calls(*chunk, calls_of(*pass)));
    }
    recorded_passes_.push_back({pass->key.chunk, pass->number, std::move(moments)});
  }
  schedule_ =
      follower_.on_schedule() ? known_part(follower_.schedule(), *profile_) : recorded_schedule_;
  cached_plans_.clear();
  budgeting_.time_updates = 0;
  // What earlier steps had above another profile's prediction says nothing of this one's.
  budgeting_.reserve = budgeting_.planned_reserve = {};
  budgeting_.corrected = 0;
  offload_until_planned();
  budgeting_.untimed = false;
  if (lacks_freed_memory()) {
    budgeting_.recorded_again = true;
    record_next_ = true;
    return count_fallback("memory from before the recording step was freed in it: recorded again");
  }
  start_planning();
}

void SessionCore::offload_until_planned() {
  budgeting_.unplanned = true;
  budgeting_.error = nullptr;
  budgeting_.smallest = nullptr;
  budgeting_.problem.clear();
  Rules offload_all;
  offload_all.rules.emplace_back().action.kind = ActionKind::kOffload;
  Plan plan = make_plan(*profile_, offload_all);
  for (ChunkPlan& chunk : plan.chunks) {
    for (Decision& decision : chunk.decisions) {
      if (decision.fixed == FixedReason::kNone) decision.reason = "no plan yet";
    }
  }
  adopt_plan(std::move(plan));
}

void SessionCore::start_planning() {
  if (plans_together() && sharding_.group->rank() != 0) return;
  const auto is_timed = [](const ChunkProfile& chunk) { return !chunk.timeline.empty(); };
  // Ranks that plan together hear of it from the first one.
  if (!std::ranges::all_of(profile_->chunks, is_timed) && !plans_together()) {
    if (std::exchange(budgeting_.untimed, true)) return;
    count_fallback(
        "the recorded passes ran within each other, so they have no times: recorded "
        "again");
    return delay_recordings();
  }
  PlanningJob::Question question;
  question.profile = profile_;
  question.budget = *options_.budget;
  question.reserve = budgeting_.reserve;
  question.room = device_->room() + device_->allocated();
  question.room -= std::min(question.room, profile_->fixed);
  question.options.rules = options_.rules;
  Limits& limits = question.options.rules.limits;
  limits.host = std::min(limits.host.value_or(tier_->capacity()), tier_->capacity());
  if (!limits.recompute_cache) limits.recompute_cache = options_.recompute_cache;
  question.options.schedule = schedule_;
  question.options.shard = shard_model();
  if (plans_together()) {
    // Sharded parts use these windows even where allowances exist.
    if (!limits.offload_window)
      limits.offload_window = options_.offload_window.value_or(small_window(*profile_));
    if (!limits.prefetch_window)
      limits.prefetch_window = options_.prefetch_window.value_or(Bytes(0));
    question.options.equal = equal_buffers();
  }
  question.recorded = recorded_schedule_;
  question.passes = recorded_passes_;
  question.options.time_limit = options_.planning_time;
  forget_planning();
  job_schedule_ = schedule_;
  if (options_.plan_in_background) {
    job_ = std::make_unique<PlanningJob>(std::move(question));
    if (!job_->has_thread()) count_fallback("no thread for the planner: a step waited for it");
  } else {
    take_answer(PlanningJob::plan(question));
  }
}

void SessionCore::forget_planning() {
  if (job_ == nullptr) return;
  // It ends soon, but must not be waited for here.
  job_->cancel();
  old_jobs_.push_back(std::move(job_));
}

void SessionCore::take_answer(const PlanningJob::Answer& answer) {
  if (answer.budget > Bytes(0)) budgeting_.budget = answer.budget;
  // Do not grow it again: the rest of the budget would be too small.
  if (!answer.reserve_fits) budgeting_.corrected = kMaxCorrections;
  if (!answer.error) return take_plan(*answer.plan);
  if (!budgeting_.unplanned) {
    budgeting_.reserve = budgeting_.planned_reserve;
    count_fallback("replanning failed: the current plan stays");
    return;
  }
  budgeting_.problem = text_of(answer.error);
  budgeting_.error = answer.error;
  budgeting_.smallest = answer.plan;
}

void SessionCore::take_plan(const Plan& plan) {
  budgeting_.problem.clear();
  budgeting_.unplanned = false;
  // Better times do not make a plan fit.
  budgeting_.time_next = budgeting_.time_updates < kMaxTimeUpdates && fits(plan);
  read_passes_.clear();
  budgeting_.timed_steps = 0;
  ++budgeting_.plans;
  budgeting_.planned_reserve = budgeting_.reserve;
  budgeting_.excess_of_others = {};
  if (budgeting_.on_problem == OnProblem::kThrow) budgeting_.on_problem = OnProblem::kWarn;
  adopt_plan(plan);
  if (fits(plan)) return;
  budgeting_.problem = "[plan] no plan fits " + to_string(*plan.budget) +
                       ": the smallest peak found is " + to_string(*plan.predicted_peak);
  count_fallback("no plan fits the budget: the one with the smallest peak is executed");
}

bool SessionCore::have_enough_times() const {
  // Steps that lack one of the chunks never provide its times.
  if (budgeting_.time_updates == 0 || budgeting_.timed_steps >= kTimedPasses) return true;
  return std::all_of(profile_->chunks.begin(), profile_->chunks.end(), [&](const auto& chunk) {
    return std::count_if(read_passes_.begin(), read_passes_.end(), [&](const TimedPass& pass) {
             return pass.chunk == chunk.chunk;
           }) >= kTimedPasses;
  });
}

void SessionCore::read_times(bool wait) {
  if (timed_passes_.empty() || (!wait && !clock_.have_happened())) return;
  std::vector<TimedPass> just_timed = std::exchange(timed_passes_, {});
  try {
    clock_.resolve();
  } catch (const Error&) {
    return;  // The next use of the failed device throws.
  }
  if (clock_.failed()) return;
  std::move(just_timed.begin(), just_timed.end(), std::back_inserter(read_passes_));
  ++budgeting_.timed_steps;
  if (!have_enough_times()) {
    budgeting_.time_next = true;
    return;
  }
  ++budgeting_.time_updates;
  budgeting_.timed_steps = 0;
  std::optional<Profile> fresh = with_times(*profile_, std::exchange(read_passes_, {}));
  if (!fresh) return;
  if (plan_ != nullptr) *fresh = without_slowing(*fresh, *plan_, simulated_as_now());
  const double before = total_ns(*profile_);
  const double now = total_ns(*fresh);
  const bool slower_link = update_link_speed(*fresh);
  profile_ = std::make_shared<const Profile>(std::move(*fresh));
  if (!slower_link && (before <= 0 || std::abs(now / before - 1) <= kSameTimes)) return;
  if (options_.budget) {
    start_planning();
  } else {
    cached_plans_.clear();
    fit_windows();
  }
}

SimulateOptions SessionCore::simulated_as_now() const {
  SimulateOptions options;
  options.schedule = schedule_;
  options.shard = shard_model();
  return options;
}

bool SessionCore::update_link_speed(Profile& fresh) {
  if (const std::optional<WaitTimes::Marks> marks = waits_.take()) waits_.keep(waits_.read(*marks));
  const WaitTotals& waits = waits_.last();
  if (waits.step != budgeting_.timed_step || plan_ == nullptr) return false;
  const Simulation predicted = simulate(fresh, *plan_, simulated_as_now());
  const auto step = static_cast<double>(predicted.step_ns);
  const auto unpredicted = [](Nanoseconds measured, std::int64_t expected_ns) {
    return static_cast<double>(measured.count() - expected_ns);
  };
  const bool out = slow_down(fresh.link.out, fresh.link.out_with_back, predicted.bytes_out,
                             unpredicted(waits.release, predicted.waits.release_ns), step);
  const bool back = slow_down(fresh.link.back, fresh.link.back_with_out, predicted.bytes_back,
                              unpredicted(waits.reload, predicted.waits.reload_ns), step);
  return out || back;
}

void SessionCore::update_drift() const {
  if (const std::optional<Nanoseconds> time = step_time_.take(/*wait=*/false)) {
    budgeting_.measured_step = *time;
  }
  budgeting_.drift.clear();
  if (plan_ == nullptr || !plan_->predicted_step_ns || !plan_->predicted_peak) return;
  const Nanoseconds step = budgeting_.measured_step;
  const Bytes peak = budgeting_.measured_peak;
  const auto add = [&](const std::optional<std::string>& line) {
    if (line) budgeting_.drift.push_back(*line);
  };
  if (step.count() > 0) {
    const auto ns = static_cast<double>(step.count());
    add(drift_of("the step takes " + with_decimals(ns / 1e6, 2) + " ms", ns,
                 static_cast<double>(*plan_->predicted_step_ns), options_.drift));
  }
  if (peak > Bytes(0)) {
    add(drift_of("the peak is " + to_string(peak), static_cast<double>(peak.count()),
                 static_cast<double>(plan_->predicted_peak->count()), options_.drift));
  }
}

Bytes SessionCore::known_budget() const {
  if (plan_ != nullptr && plan_->budget) return *plan_->budget;
  return options_.budget->is_bytes() ? options_.budget->resolve({}, {}) : budgeting_.budget;
}

BudgetReport SessionCore::budget_report() const {
  update_drift();
  BudgetReport report;
  report.budget = known_budget();
  report.steps = budgeting_.steps;
  if (const auto found = report.steps.find(StepKind::kUnplanned); found != report.steps.end()) {
    report.unplanned_steps = found->second.steps;
  }
  report.plans = budgeting_.plans;
  report.problem = budgeting_.problem;
  report.measured_steps = budgeting_.measured_steps;
  report.measured_peak = budgeting_.measured_peak;
  report.verification_peak = budgeting_.verification_peak;
  report.measured_step = budgeting_.measured_step;
  report.drift = budgeting_.drift;
  report.over_budget_steps = budgeting_.over_budget_steps;
  report.planned = plan_ != nullptr && plan_->budget && !budgeting_.unplanned;
  if (!report.planned) return report;
  report.predicted_peak = plan_->predicted_peak.value_or(Bytes(0));
  report.predicted_step = Nanoseconds(plan_->predicted_step_ns.value_or(0));
  report.base_step = Nanoseconds(plan_->base_step_ns.value_or(0));
  report.bound_step = Nanoseconds(plan_->bound_step_ns.value_or(0));
  return report;
}

}  // namespace spillway
