// What the plan controller needs of the session, and what the session tells it.
#include <algorithm>
#include <utility>

#include "spillway/core/error.hpp"
#include "torch/execute/chunk_layout.hpp"
#include "torch/execute/session_core.hpp"
#include "torch/record/step_time.hpp"

namespace spillway {

void SessionCore::plan_adopted() {
  unread_step_.reset();
  skipped_.clear();
  recipes_.plan_replaced();
  sharding_.adopt_plan();
  remember_plan();
  lay_out();
}

void SessionCore::plan_revised() { lay_out(); }

void SessionCore::lay_out() {
  const Plan& plan = *current_.plan();
  set_engine_limits(plan.limits);
  layouts_.clear();
  for (const ChunkPlan& chunk : plan.chunks) {
    layouts_[chunk.chunk] =
        layout_of(chunk, plan.budget.has_value(), shard_model().ranks, current_.profile().get());
  }
  sharding_.set_plan(plan);
}

void SessionCore::warn(const std::string& text) { TORCH_WARN(text); }

PlanningConditions SessionCore::conditions() const {
  PlanningConditions conditions;
  conditions.device = device_->room() + device_->allocated();
  conditions.host = tier_->capacity();
  if (plans_together() && options_.rules.plan_shards) {
    conditions.equal = sharding_.equal(*current_.profile());
  }
  return conditions;
}

PlanningRanks SessionCore::ranks() const {
  const bool together = plans_together();
  return {.together = together, .first = !together || sharding_.group()->rank() == 0};
}

Bytes SessionCore::allocated() const { return device_->allocated(); }

bool SessionCore::have_times_happened() {
  return unread_times_.empty() || times_known(*unread_times_.back().log, *device_);
}

bool SessionCore::resolve_times() {
  const std::vector<UnreadTimes> all = std::exchange(unread_times_, {});
  try {
    for (const UnreadTimes& each : all) add_times(*each.log, *device_, *each.moments);
  } catch (const Error&) {
    return false;  // The next use of the failed device throws.
  }
  return std::ranges::none_of(all, [](const UnreadTimes& each) { return each.log->failed; });
}

std::optional<CopyWaits> SessionCore::copy_waits(std::uint64_t step) {
  if (const auto log = waits_.take()) waits_.keep(wait_totals(*log, *device_));
  const WaitTotals& waits = waits_.last();
  if (waits.step != step) return std::nullopt;
  return CopyWaits{waits.release, waits.reload};
}

std::optional<Nanoseconds> SessionCore::take_step_time() {
  if (unread_step_ == nullptr || !step_time_known(*unread_step_, *device_)) return std::nullopt;
  return step_time(*std::exchange(unread_step_, nullptr), *device_);
}

void SessionCore::use_plan(Plan plan) {
  const std::lock_guard lock(mutex_);
  if (in_step()) throw InvalidArgument("plan", "a step is under way; end it first");
  const bool fitted = std::exchange(fitting_.enabled, false);
  try {
    controller_.use_plan(std::move(plan));
  } catch (...) {
    fitting_.enabled = fitted;  // The plan by rules stays.
    throw;
  }
}

void SessionCore::wait_for_plan() {
  const std::lock_guard lock(mutex_);
  if (in_step()) throw InvalidArgument("plan", "a step is under way; end it first");
  controller_.budget().wait_for_plan();
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

void SessionCore::begin_log(std::optional<TimeMark> epoch) {
  StepLog::Needs needs;
  // While the device has not finished a measured step, others are not measured. Tracing changes how
  // long a step takes.
  needs.step_time = task_.measures && !epoch && unread_step_ == nullptr;
  needs.waits = waits_.begin_step(task_.records(), task_.times() || epoch);
  needs.memory = task_.records() || epoch;
  needs.compute = needs.memory || task_.times();
  if (task_.records()) unread_times_.clear();
  log_.begin(controller_.steps() + 1, needs, task_.records() ? &watch_ : nullptr, std::move(epoch));
}

void SessionCore::end_measuring(bool complete, const std::shared_ptr<const StepLog>& log) {
  const Bytes peak = step_.device_peak - std::min(step_.device_peak, step_start_);
  const StepKind kind =
      controller_.kind_of_step(is_as_profiled(complete), log != nullptr && log->epoch);
  measured_ = MeasuredStep{controller_.steps(), kind, step_start_, peak};
  if (log != nullptr && log->needs.waits) waits_.end_step(log);
  const bool timed_whole = log != nullptr && log->needs.step_time;
  if (timed_whole && kind == StepKind::kPlanned) unread_step_ = log;
  controller_.note_measured(*measured_);
  if (!task_.times()) return;
  const auto moments = std::make_shared<StepMoments>(moments_of(*log, passes_.size()));
  std::vector<TimedPass> timed;
  for (const auto& pass : passes_) {
    const PassMoments& noted = moments->passes[static_cast<std::size_t>(pass->number)];
    if (!noted.backward || !pass->as_profiled() || !noted.in_order) continue;
    const ChunkProfile* const chunk = recorded_chunk(pass->key.chunk);
    if (chunk == nullptr) continue;
    timed.push_back(
        {pass->key.chunk, match_calls(*chunk, calls_of(*pass)), {moments, &noted.list}});
  }
  if (timed.empty()) return;
  unread_times_.push_back({log, moments});
  controller_.note_timed(std::move(timed));
}

std::optional<MeasuredStep> SessionCore::last_step() const {
  const std::lock_guard lock(mutex_);
  return measured_;
}

void SessionCore::settle_host_memory(const StepTask& task) {
  slab_->retry();
  const Bytes reach = slab_->take_reach();
  const std::optional<Bytes> keep =
      controller_.host_memory_to_keep(task, reach, slab_->usage().pinned);
  if (keep) slab_->trim(*keep);
}

}  // namespace spillway
