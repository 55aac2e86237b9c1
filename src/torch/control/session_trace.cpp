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

std::optional<TimeMark> SessionCore::begin_trace() {
  if (!task_.traces) return std::nullopt;
  if (step_events_ == nullptr) traced_.reset();  // Its copies are discarded now.
  try {
    TimeMark epoch = device_->epoch();
    if (epoch.event != nullptr) engine_->start_timing(epoch.event);
    return epoch;
  } catch (const Error&) {
    return std::nullopt;  // The next use of the failed device throws.
  }
}

std::shared_ptr<TracedStep> SessionCore::end_trace(std::shared_ptr<const StepLog> log) const {
  if (log == nullptr || !log->epoch) return nullptr;
  engine_->stop_timing();
  auto traced = std::make_shared<TracedStep>();
  traced->log = std::move(log);
  if (!task_.records() && !task_.verifies()) traced->profile = current_.profile();
  traced->plan = current_.plan();
  for (const auto& pass : passes_) {
    traced->passes.push_back({{pass->key.chunk, pass->key.micro_batch, false}, pass->saves > 0});
  }
  for (const auto& [pass, backward] : order_) {
    if (!pass->backward_begun || pass->layout == nullptr) continue;
    traced->schedule.push_back({pass->key.chunk, pass->key.micro_batch, backward});
  }
  return traced;
}

std::shared_ptr<const StepEvents> SessionCore::step_events() const {
  const std::lock_guard reading(trace_mutex_);
  std::shared_ptr<const TracedStep> traced;
  {
    const std::lock_guard lock(mutex_);
    if (step_events_ != nullptr || traced_ == nullptr) return step_events_;
    traced = traced_;
  }
  auto events = std::make_shared<const StepEvents>(
      step_events_of(*traced, *device_, engine_->drain_records()));
  const std::lock_guard lock(mutex_);
  if (traced == traced_) step_events_ = events;
  return events;
}

Trace SessionCore::trace() const {
  const std::shared_ptr<const StepEvents> measured = step_events();
  std::shared_ptr<const TracedStep> traced;
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
  const bool planned = traced->profile != nullptr && traced->plan != nullptr &&
                       made_for(*traced->plan, *traced->profile);
  if (planned) {
    try {
      options.schedule = traced->schedule;
      const Simulation simulation = simulate(*traced->profile, *traced->plan, options);
      trace.processes.push_back(
          process_of("predicted", predicted_events(simulation, *traced->profile, *traced->plan)));
    } catch (const InvalidArgument&) {
      // A profile without times, or a step that was not as recorded: there is no prediction.
    }
  }
  trace.processes.push_back(process_of("measured", *measured));
  return trace;
}

}  // namespace spillway
