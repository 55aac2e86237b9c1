#include <algorithm>
#include <utility>

#include "plan/simulate/backward_setter.hpp"
#include "plan/simulate/forward_setter.hpp"
#include "plan/simulate/last_save_setter.hpp"
#include "plan/simulate/simulator.hpp"

namespace spillway {
namespace {

/// How passes in flight share the budget.
struct Shares {
  std::int64_t reserve = 0;  ///< See LastSaveSetter.
  int carried = 100;         ///< See BackwardSetter.
};

/// Simulates the plan with no limits but those of this listener.
ByteTargets targets_for(const std::vector<PlannedChunk>& chunks, const PassSchedule& schedule,
                        const StepLimits& limits, std::int64_t budget, const Shares& shares) {
  ByteTargets targets;
  for (const PlannedChunk& chunk : chunks) {
    targets.forward.emplace_back(chunk.model->save_moment.size(), EngineLimits::kNone);
    targets.backward.emplace_back(chunk.model->unpack_moment.size(), EngineLimits::kNone);
  }
  const StepResidency no_lists(schedule.size());
  const auto walk = [&](StepListener& listener) {
    StepWalk step(chunks, schedule, limits, listener);
    step.use(no_lists);
    step.run();
  };
  ForwardSetter forward_setter(budget, targets.forward);
  walk(forward_setter);
  // What one pass releases changes what others must release.
  constexpr int kRounds = 8;
  bool changed = true;
  for (int round = 0; round < kRounds && changed; ++round) {
    LastSaveSetter last_save_setter(budget, shares.reserve, targets.forward);
    walk(last_save_setter);
    last_save_setter.finish();
    changed = last_save_setter.changed() && schedule.size() > 2;
  }
  BackwardSetter backward_setter(budget, shares.carried, targets.forward);
  walk(backward_setter);
  backward_setter.fill_in(targets.backward);
  return targets;
}

}  // namespace

ByteTargets Simulator::set_residency(Bytes budget, Plan& plan) const {
  const std::vector<PlannedChunk> chunks = planned_chunks(plan);
  StepLimits limits(plan, {});
  limits.engine.offload_window = limits.engine.prefetch_window = EngineLimits::kNone;
  limits.engine.cap = EngineLimits::kNone;
  const std::int64_t wanted = EngineLimits::count(budget);
  // Passes in flight of a chunk share its targets, which may suit some of them less than others:
  // aims lower until the budget holds.
  const auto fit = [&](const Shares& shares, Plan& fitted) {
    constexpr int kRounds = 4;
    ByteTargets targets;
    std::int64_t target = wanted;
    std::int64_t excess = 1;
    for (int round = 0; round < kRounds && excess > 0; ++round) {
      targets = targets_for(chunks, schedule_, limits, target, shares);
      targets.budget = wanted;
      excess = set_residency(targets, fitted) - wanted;
      if (schedule_.size() <= 2) break;
      target = std::max<std::int64_t>(0, target - excess);
    }
    return std::pair(std::move(targets), std::max<std::int64_t>(0, excess));
  };
  if (schedule_.size() <= 2) return fit({}, plan).first;
  // The newest pass and the reloads of the oldest compete for memory: the fastest shares win.
  Plan best;
  ByteTargets targets;
  Shares fastest;
  bool waits = true;
  std::pair<std::int64_t, std::int64_t> least{EngineLimits::kNone, EngineLimits::kNone};
  const auto try_with = [&](const Shares& shares) {
    if (!waits) return;
    Plan fitted = plan;
    auto [found, excess] = fit(shares, fitted);
    const Simulation simulation = run(fitted);
    const std::pair excess_and_time{excess, simulation.step_ns};
    if (excess_and_time >= least) return;
    least = excess_and_time;
    best = std::move(fitted);
    targets = std::move(found);
    fastest = shares;
    waits = excess > 0 || simulation.waits.release_ns > 0 || simulation.waits.reload_ns > 0;
  };
  for (const int percent : {0, 5, 10, 20, 40}) try_with({wanted / 100 * percent, 100});
  for (const int carried : {50, 0}) try_with({fastest.reserve, carried});
  plan = std::move(best);
  return targets;
}

}  // namespace spillway
