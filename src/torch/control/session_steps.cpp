#include <algorithm>
#include <chrono>
#include <map>
#include <ranges>
#include <set>
#include <thread>
#include <utility>

#include "plan/profile/find_layers.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/planner.hpp"
#include "torch/device/link_speed.hpp"
#include "torch/execute/session_core.hpp"
#include "torch/hooks/error_text.hpp"

namespace spillway {
namespace {

/// What was saved by a call that had not ended when its step did: how it is made will not be known.
void stop_awaiting(Pass& pass) noexcept {
  for (const std::weak_ptr<SavedBuffer>& each : pass.buffers) {
    const std::shared_ptr<SavedBuffer> buffer = each.lock();
    if (buffer == nullptr || !std::exchange(buffer->awaited, false)) continue;
    // One that is verified was offloaded; the other is where it was saved.
    if (!std::exchange(buffer->verify, false)) buffer->action = ActionKind::kKeep;
  }
}

}  // namespace

SessionCore::StepNumber SessionCore::begin_step(const PassSchedule& schedule) {
  throw_step_error();
  const bool captures = device_->is_capturing();
  const StepThread* const here = StepThread::current();
  await_end_of_thread();
  const std::lock_guard lock(mutex_);
  if (captures) {
    note_capture();
    return 0;
  }
  if (here != nullptr) {
    throw InvalidArgument("step", here == step_thread_.get()
                                      ? "this session's step has not ended; end it first"
                                      : "another session is within a step on this thread; end that "
                                        "one first, or use another thread");
  }
  // Its thread has ended within it, or it ended while a stream was being captured.
  if (in_step() && step_thread_->is_over()) end_step_locked();
  drop_deferred();
  if (in_step()) {
    throw InvalidArgument("step",
                          "this session is within a step on another thread; use one session a "
                          "thread");
  }
  if (options_.budget) {
    controller_.prepare(schedule);
    share_plan();
  } else {
    begin_fitted_step(schedule);
  }
  try {
    return start_step(schedule);
  } catch (...) {
    controller_.cancel_step();
    book_.reset();
    stop_measuring();
    throw;
  }
}

void SessionCore::stop_measuring() noexcept {
  log_.discard();
  engine_->stop_timing();
  watch_.clear(mutex_);
}

SessionCore::StepNumber SessionCore::start_step(const PassSchedule& schedule) {
  StepNeeds needs;
  for (const auto& [chunk, layout] : layouts_) {
    needs.recomputes = needs.recomputes || layout->recomputes;
    needs.identifies = needs.identifies || layout->must_not_move || !never_moved_.empty();
  }
  agree_on_collectives();
  agree_on_sharding(controller_.verification_is_due());
  needs.shards = sharding_.mode() == ShardMode::kSharding;
  needs.compares_ranks = sharding_.mode() == ShardMode::kVerifying;
  controller_.begin_step(needs);
  follower_.begin(schedule);
  fixed_.number();
  passes_.clear();
  order_.clear();
  explicit_passes_ = false;
  backward_announced_ = false;
  last_backward_order_ = std::exchange(backward_order_, {});
  if (task_.checks_copies) copies_.prepare();
  step_ = StepCounts{};
  machine_.reset_peak();
  step_.saved_peak = saved_;
  step_.kept_peak = kept_bytes_;
  weight_numbers_.begin_step(task_.records());
  (void)device_->take_peak();
  step_start_ = device_->allocated();
  std::optional<TimeMark> epoch = begin_trace();
  const bool traces = epoch.has_value();
  begin_log(std::move(epoch));
  // A step that checks copies sees all writes it can.
  const bool regions = regions_.is_needed();
  if (task_.signs_saves || task_.checks_copies || regions) {
    const Plan* const plan = current_.plan().get();
    book_ = std::make_shared<RecipeBook>(
        [this](const c10::StorageImpl* storage) { return fixed_.find(storage); },
        [this](const at::Tensor& weight) { return weight_numbers_.of(weight); },
        plan != nullptr && plan->recompute_collectives && !collectives_.differ());
  }
  regions_.begin_step(book_ != nullptr);
  CallListener* const listener = book_ != nullptr ? this : nullptr;
  step_thread_ = StepThread::begin({weak_from_this(), this, listener,
                                    listener != nullptr && (task_.records() || traces || regions),
                                    options_.scope_source});
  log_.resume();
  return step_thread_->number();
}

void SessionCore::await_end_of_thread() {
  std::shared_ptr<StepThread> step;
  {
    const std::lock_guard lock(mutex_);
    step = step_thread_;
  }
  // A thread of Python that was joined may still have to say that its step is over. If it goes on,
  // that is an error, so waiting costs nothing.
  if (step == nullptr || step->is_here()) return;
  constexpr int kMostWaits = 200;
  for (int i = 0; i < kMostWaits && !step->is_over(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void SessionCore::end_step(StepNumber number) noexcept {
  if (!in_its_process()) return;
  const bool captures = device_->is_capturing();
  const std::lock_guard lock(mutex_);
  if (!is_step(number)) return;
  // What ends a step uses streams, so it must wait; the thread leaves the step now.
  if (captures) return step_thread_->end();
  end_step_locked();
}

void SessionCore::throw_error_of(StepNumber number) {
  if (!in_its_process()) return;
  {
    const std::lock_guard lock(mutex_);
    if (last_ended_ != number) return;
  }
  throw_step_error();
}

void SessionCore::end_any_step() noexcept {
  if (!in_its_process()) return;
  StepNumber number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (in_step()) number = step_thread_->number();
  }
  end_step(number);
}

void SessionCore::end_step_locked() noexcept {
  const RecordingPause pause;  // This thread may be in a step of another session.
  last_ended_ = step_thread_->number();
  std::exchange(step_thread_, nullptr)->end();
  const StepTask task = task_;
  regions_.end_step();
  try {
    drop_deferred();
    close_step();
  } catch (...) {
    // The gradients are there. Whatever a plan would need is recorded again.
    note_failure("the end of a step");
    controller_.record_again();
    stop_measuring();
  }
  controller_.end_step();
  copies_.sources().clear(mutex_);
  for (const auto& pass : passes_) {
    // A backward may still run; it is not recorded.
    pass->profiler = nullptr;
    pass->timed.reset();
    pass->over = true;
    stop_awaiting(*pass);
  }
  passes_.clear();
  order_.clear();
  awaited_.clear();
  book_.reset();
  call_locations_.clear();
  running_calls_.clear();
  try {
    settle_host_memory(task);
  } catch (...) {
    note_failure("giving host memory back");
  }
}

void SessionCore::note_failure(const char* where) noexcept {
  try {
    count_fallback(std::string(where) + " failed: " + text_of(std::current_exception()));
  } catch (...) {
    return;  // No memory for the message.
  }
}

void SessionCore::close_step() {
  controller_.count_step();
  end_sharding();
  const bool complete = follower_.complete();
  if (!complete) count_fallback("the step ended before its schedule was complete");
  step_.on_device_peak = static_cast<std::size_t>(machine_.peak());
  step_.device_peak = device_->peak();
  const std::shared_ptr<const StepLog> log = log_.end();
  if (log != nullptr) step_.device_peak = std::max(step_.device_peak, log->peak);
  const std::shared_ptr<TracedStep> traced = end_trace(log);
  end_measuring(complete, log);
  watch_.clear(mutex_);
  settle_awaited();
  for (const auto& pass : passes_) look_for_freed_weights(*pass, FreedWeights::At::kStepEnds);
  compare_with_owners();
  const std::vector<CopyChecks::Failure> wrong_copies = read_copy_checks();
  // Recipes that were not known before are verified in any step.
  if (task_.verifies() || recipes_.any_compared()) finish_verification();
  const bool recorded = task_.records();
  if (recorded) {
    ++recorded_steps_;
    try {
      finish_recording(*log);
    } catch (const std::exception& error) {
      controller_.record_again();
      count_fallback(std::string("the profile could not be used: ") + error.what());
    }
  } else {
    last_step_ = step_;
    note_order();
    check_matches();
  }
  report_copies(wrong_copies);
  report_moved_roots();
  demote_owned_elsewhere();
  for (const auto& pass : passes_) {
    for (const ValueId anchor : std::exchange(pass->anchors, {})) release_root(anchor, *pass->book);
  }
  if (traced == nullptr) return;
  if (recorded) traced->plan = current_.plan();  // A recording step has none to take names from.
  traced_ = traced;
  step_events_.reset();
}

void SessionCore::verify_next_step() {
  const std::lock_guard lock(mutex_);
  controller_.ask_to_verify();
}

void SessionCore::record_next_step() {
  const std::lock_guard lock(mutex_);
  controller_.ask_to_record();
}

bool SessionCore::next_step_records() const {
  const std::lock_guard lock(mutex_);
  return controller_.records_next();
}

std::shared_ptr<const Profile> SessionCore::profile() const {
  const std::lock_guard lock(mutex_);
  return current_.profile();
}

std::shared_ptr<const Plan> SessionCore::plan() const {
  const std::lock_guard lock(mutex_);
  return current_.plan();
}

}  // namespace spillway
