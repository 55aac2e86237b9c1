#include "spillway/plan/simulate.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "plan/simulate/simulator.hpp"
#include "plan/simulate/timed_step.hpp"
#include "spillway/core/error.hpp"

namespace spillway {
namespace {

std::int64_t pick(std::optional<Bytes> first, std::optional<Bytes> second, Bytes last) {
  return EngineLimits::count(first.value_or(second.value_or(last)));
}

StepLimits limits_of(const Plan& plan, const Limits& windows) {
  const Bytes all(EngineLimits::kNone);
  StepLimits limits;
  limits.host = pick(plan.limits.host, windows.host, all);
  EngineLimits& engine = limits.engine;
  engine.offload_window = pick(plan.limits.offload_window, windows.offload_window, kDefaultWindow);
  engine.prefetch_window =
      pick(plan.limits.prefetch_window, windows.prefetch_window, kDefaultWindow);
  engine.pending_release = pick(plan.max_pending_release, std::nullopt, all);
  engine.prefetch = pick(plan.max_prefetch, std::nullopt, all);
  engine.shard_offload_window = engine.offload_window;
  engine.shard_prefetch_window = engine.prefetch_window;
  return limits;
}

bool offloads(const std::vector<PlannedChunk>& chunks) {
  return std::any_of(chunks.begin(), chunks.end(),
                     [](const PlannedChunk& chunk) { return !chunk.reload_order.empty(); });
}

}  // namespace

void require_made_for(const Plan& plan, const Profile& profile) {
  if (made_for(plan, profile)) return;
  throw InvalidArgument(
      "simulate",
      "the plan was made for another structure than the profile's; make a new one "
      "with `spillway plan`");
}

Simulator::Simulator(const Profile& profile, PassSchedule schedule, const ShardModel& shard)
    : profile_(profile), schedule_(std::move(schedule)), shard_(shard) {
  if (schedule_.empty()) schedule_ = one_pass(profile);
  require_valid(schedule_, profile);
  for (const ChunkProfile& chunk : profile.chunks) {
    models_.push_back(model_of(chunk, profile.granularity));
  }
}

std::vector<PlannedChunk> Simulator::planned_chunks(const Plan& plan) const {
  std::vector<PlannedChunk> chunks;
  chunks.reserve(models_.size());
  for (std::size_t i = 0; i < models_.size(); ++i) {
    chunks.push_back(planned(models_[i], plan.chunks[i], plan.limits, shard_.ranks));
  }
  return chunks;
}

Simulation Simulator::run(const Plan& plan, const Limits& windows, bool trace) const {
  return run(plan, windows, trace, nullptr);
}

AloneTimes Simulator::times_alone(const Plan& plan, const Limits& windows) const {
  AloneTimes alone;
  for (const ChunkProfile& chunk : profile_.chunks) alone.emplace_back(chunk.timeline.size());
  (void)run(plan, windows, /*trace=*/false, &alone);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    const ChunkProfile& chunk = profile_.chunks[i];
    const auto passes = std::count_if(schedule_.begin(), schedule_.end(), [&](const auto& step) {
      return !step.backward && step.chunk == chunk.chunk;
    });
    for (std::size_t moment = 0; moment < alone[i].size(); ++moment) {
      double& ns = alone[i][moment];
      ns = passes > 0 ? ns / static_cast<double>(passes)
                      : static_cast<double>(chunk.timeline[moment].compute_ns);
    }
  }
  return alone;
}

StepWalk::Tails Simulator::settled_tails(const std::vector<PlannedChunk>& chunks,
                                         const StepLimits& limits) const {
  StepWalk::Tails tails;
  // Buffers that stay on the device free host memory, so more may be offloaded than in the step
  // before.
  constexpr int kSteps = 4;
  for (int step = 0; step < kSteps && offloads(chunks); ++step) {
    StepListener nobody;
    StepWalk step_before(chunks, schedule_, limits, nobody, tails);
    step_before.run();
    const bool settled = step_before.tails() == tails || !step_before.found_no_room();
    tails = step_before.tails();
    if (settled) break;
  }
  return tails;
}

CommandLog Simulator::commands(const Plan& plan, const Limits& windows) const {
  const std::vector<PlannedChunk> chunks = planned_chunks(plan);
  const StepLimits limits = limits_of(plan, windows);
  StepListener nobody;
  StepWalk walk(chunks, schedule_, limits, nobody, settled_tails(chunks, limits));
  CommandLog log;
  walk.log_to(log);
  walk.run();
  return log;
}

Simulation Simulator::run(const Plan& plan, const Limits& windows, bool trace,
                          AloneTimes* alone) const {
  const std::vector<PlannedChunk> chunks = planned_chunks(plan);
  const StepLimits limits = limits_of(plan, windows);
  StepWalk::Tails tails = settled_tails(chunks, limits);
  TimedStep timed(chunks, schedule_, profile_.link, shard_, trace, alone);
  StepWalk walk(chunks, schedule_, limits, timed, std::move(tails));
  walk.run();
  Simulation result = std::move(timed).take();
  result.host_peak = Bytes(static_cast<std::uint64_t>(walk.host_peak()));
  result.bytes_out = Bytes(static_cast<std::uint64_t>(walk.bytes_out()));
  result.bytes_back = Bytes(static_cast<std::uint64_t>(walk.bytes_back()));
  result.bytes_gathered = Bytes(static_cast<std::uint64_t>(walk.bytes_gathered()));
  return result;
}

bool has_times(const Profile& profile) {
  return std::none_of(profile.chunks.begin(), profile.chunks.end(),
                      [](const ChunkProfile& chunk) { return chunk.timeline.empty(); });
}

Simulation simulate(const Profile& profile, const Plan& plan, const SimulateOptions& options) {
  require_made_for(plan, profile);
  return Simulator(profile, options.schedule, options.shard)
      .run(plan, options.windows, options.trace);
}

void set_allowances(const Profile& profile, Bytes budget, Plan& plan,
                    const PassSchedule& schedule) {
  require_made_for(plan, profile);
  Simulator(profile, schedule).set_allowances(budget, plan);
}

}  // namespace spillway
