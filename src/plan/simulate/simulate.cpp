#include "spillway/plan/simulate.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "plan/simulate/simulator.hpp"
#include "plan/simulate/timed_step.hpp"
#include "spillway/core/error.hpp"

namespace spillway {

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

CommandLog Simulator::commands(const Plan& plan, const Limits& windows) const {
  const std::vector<PlannedChunk> chunks = planned_chunks(plan);
  StepListener nobody;
  StepWalk walk(chunks, schedule_, StepLimits(plan, windows), nobody);
  CommandLog log;
  walk.log_to(log);
  walk.run();
  return log;
}

Simulation Simulator::run(const Plan& plan, const Limits& windows, bool trace,
                          AloneTimes* alone) const {
  const std::vector<PlannedChunk> chunks = planned_chunks(plan);
  TimedStep timed(chunks, schedule_, profile_.link, shard_, trace, alone);
  StepWalk walk(chunks, schedule_, StepLimits(plan, windows), timed);
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

void set_residency(const Profile& profile, Bytes budget, Plan& plan, const PassSchedule& schedule,
                   const ShardModel& shard) {
  require_made_for(plan, profile);
  (void)Simulator(profile, schedule, shard).set_residency(budget, plan);
}

}  // namespace spillway
