#include <utility>

#include "spillway/core/error.hpp"
#include "spillway/plan/simulate.hpp"
#include "spillway/trace/predicted.hpp"
#include "torch/execute/session_core.hpp"

namespace spillway {

void SessionCore::trace_next_step() {
  const std::lock_guard lock(mutex_);
  controller_.ask_to_trace();
}

void SessionCore::begin_trace() {
  tracing_.reset();
  if (!task_.traces) return;
  if (step_events_ == nullptr) traced_.reset();  // Its copies are discarded now.
  step_time_.forget();                           // Tracing changes how long the step takes.
  try {
    TimeMark epoch = device_->epoch();
    if (epoch.event != nullptr) engine_->start_timing(epoch.event);
    const bool planned = !task_.records() && !task_.verifies();
    tracing_ = std::make_unique<StepTrace>(std::move(epoch), planned ? current_.profile() : nullptr,
                                           current_.plan());
  } catch (const Error&) {
    return;  // The next use of the failed device throws.
  }
}

void SessionCore::end_trace() {
  if (tracing_ == nullptr) return;
  engine_->stop_timing();
  const bool waits_timed = waits_.marks().step == controller_.steps();
  tracing_->end(passes_, order_, clock_, waits_timed ? waits_.marks() : WaitTimes::Marks());
}

void SessionCore::keep_trace(bool recorded) {
  if (tracing_ == nullptr) return;
  if (recorded) tracing_->name_by(current_.plan());
  traced_ = std::move(tracing_);
  step_events_.reset();
}

std::optional<TimeMark> SessionCore::mark_if_traced() noexcept {
  if (tracing_ == nullptr) return std::nullopt;
  try {
    return device_->mark();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::shared_ptr<const StepEvents> SessionCore::step_events() const {
  const std::lock_guard reading(trace_mutex_);
  std::shared_ptr<const StepTrace> traced;
  {
    const std::lock_guard lock(mutex_);
    if (step_events_ != nullptr || traced_ == nullptr) return step_events_;
    traced = traced_;
  }
  auto events =
      std::make_shared<const StepEvents>(traced->events(*device_, engine_->drain_records()));
  const std::lock_guard lock(mutex_);
  if (traced == traced_) step_events_ = events;
  return events;
}

Trace SessionCore::trace() const {
  const std::shared_ptr<const StepEvents> measured = step_events();
  std::shared_ptr<const StepTrace> traced;
  SimulateOptions options;
  options.trace = true;
  {
    const std::lock_guard lock(mutex_);
    traced = traced_;
    const auto bytes = [](std::int64_t limit) { return Bytes(static_cast<std::uint64_t>(limit)); };
    options.windows.offload_window = bytes(machine_.limits().offload_window);
    options.windows.prefetch_window = bytes(machine_.limits().prefetch_window);
    options.shard = shard_model();
  }
  if (measured == nullptr || traced == nullptr) {
    throw InvalidArgument("trace",
                          "no step was traced yet; call trace_next_step() and run a step first");
  }
  Trace trace;
  const bool planned = traced->profile() != nullptr && traced->plan() != nullptr &&
                       made_for(*traced->plan(), *traced->profile());
  if (planned) {
    try {
      options.schedule = traced->schedule();
      const Simulation simulation = simulate(*traced->profile(), *traced->plan(), options);
      trace.processes.push_back(process_of(
          "predicted", predicted_events(simulation, *traced->profile(), *traced->plan())));
    } catch (const InvalidArgument&) {
      // A profile without times, or a step that was not as recorded: there is no prediction.
    }
  }
  trace.processes.push_back(process_of("measured", *measured));
  return trace;
}

}  // namespace spillway
