#include "plan/solve/planner_evaluate.hpp"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "plan/solve/timed.hpp"

namespace spillway {
namespace {

/// Receives bytes, by step of the schedule.
class BytesListener : public StepListener {
 public:
  explicit BytesListener(const PassSchedule& schedule) {
    for (std::size_t step = 0; step < schedule.size(); ++step) {
      const std::pair<int, int> key = {schedule[step].chunk, schedule[step].micro_batch};
      if (schedule[step].backward) {
        const auto pass = std::find(passes_.begin(), passes_.end(), key);
        backward_[static_cast<std::size_t>(pass - passes_.begin())] = static_cast<int>(step);
      } else {
        passes_.push_back(key);
        forward_.push_back(static_cast<int>(step));
        backward_.push_back(0);
      }
    }
  }

 protected:
  [[nodiscard]] int step_of(const StepPosition& position) const {
    const auto pass = static_cast<std::size_t>(position.pass);
    return position.backward ? backward_[pass] : forward_[pass];
  }

 private:
  std::vector<std::pair<int, int>> passes_;
  std::vector<int> forward_;  // By pass: its steps in the schedule.
  std::vector<int> backward_;
};

/// Notes where a step exceeds a budget.
class ExcessProbe final : public BytesListener {
 public:
  ExcessProbe(const PassSchedule& schedule, const Slots& slots, std::int64_t budget)
      : BytesListener(schedule),
        slots_(slots),
        budget_(budget),
        excess_(static_cast<std::size_t>(slots.count())) {}

  void computes(const StepPosition& position, std::int64_t /*ns*/, std::int64_t bytes) override {
    note(slots_.before(step_of(position), position.moment), bytes);
  }

  void repeats(const StepPosition& position, const ReplayJob& /*job*/,
               std::int64_t bytes) override {
    note(std::min(slots_.after(step_of(position), position.moment), slots_.count() - 1), bytes);
  }

  [[nodiscard]] std::vector<std::int64_t> take() && { return std::move(excess_); }

 private:
  void note(int slot, std::int64_t bytes) {
    std::int64_t& most = excess_[static_cast<std::size_t>(slot)];
    most = std::max(most, bytes - budget_);
  }

  const Slots& slots_;
  std::int64_t budget_;
  std::vector<std::int64_t> excess_;
};

/// Notes the bytes of every piece.
class PieceProbe final : public BytesListener {
 public:
  PieceProbe(const PassSchedule& schedule, const std::vector<ChunkSpace>& spaces)
      : BytesListener(schedule) {
    for (const PassStep& step : schedule) {
      const auto space = std::find_if(spaces.begin(), spaces.end(), [&](const ChunkSpace& each) {
        return each.chunk->chunk == step.chunk;
      });
      bytes_.emplace_back(space->chunk->timeline.size());
    }
  }

  void computes(const StepPosition& position, std::int64_t /*ns*/, std::int64_t bytes) override {
    bytes_[static_cast<std::size_t>(step_of(position))][static_cast<std::size_t>(position.moment)] =
        bytes;
  }

  [[nodiscard]] KeptBytes take() && { return std::move(bytes_); }

 private:
  KeptBytes bytes_;
};

}  // namespace

bool Evaluated::better_than(const Evaluated& other) const {
  return std::tie(excess, simulation.step_ns, simulation.bytes_out, simulation.peak) <
         std::tie(other.excess, other.simulation.step_ns, other.simulation.bytes_out,
                  other.simulation.peak);
}

Evaluator::Evaluator(const Profile& profile, const Rules& rules, const PassSchedule& schedule,
                     const ShardModel& shard)
    : rules_(rules), simulator_(profile, schedule, shard), structure_(structure_digest(profile)) {
  for (const ChunkProfile& chunk : profile.chunks) {
    matchers_.emplace_back(chunk, profile.layers);
    weights_.emplace_back(chunk, profile, rules, matchers_.back());
    spaces_.push_back(space_of(weights_.back()));
  }
  PieceProbe probe(this->schedule(), spaces_);
  walk(make_plan(profile, {}), probe);
  kept_bytes_ = std::move(probe).take();
}

Plan Evaluator::plan(const Choice& choice) {
  const Timed timed(effort_.recomputation);
  Plan plan;
  plan.structure = structure_;
  plan.limits = rules_.limits;
  plan.recompute_collectives = rules_.recompute_collectives;
  plan.notes = rules_.notes;
  for (std::size_t i = 0; i < spaces_.size(); ++i) {
    ChunkPlan chunk = spaces_[i].decided.plan;
    for (std::size_t id = 0; id < chunk.decisions.size(); ++id) {
      if (!spaces_[i].decided.open[id]) continue;
      Action& action = chunk.decisions[id].action;
      action.kind = choice[i].buffers[id];
      const std::vector<bool>& shard = choice[i].shard;
      action.shard = !shard.empty() && shard[id] && action.kind != ActionKind::kRecompute;
    }
    plan_recompute(weights_[i], chunk, choice[i].values);
    plan.chunks.push_back(std::move(chunk));
  }
  return plan;
}

Evaluated Evaluator::evaluate(const Choice& choice, std::int64_t budget) {
  return evaluate(plan(choice), budget);
}

Evaluated Evaluator::evaluate(Plan plan, std::int64_t budget) {
  const Timed timed(effort_.simulating);
  ++effort_.evaluations;
  Evaluated result{std::move(plan), {}, {}, 0};
  result.targets = simulator_.set_residency(Bytes(static_cast<std::uint64_t>(budget)), result.plan);
  result.simulation = simulator_.run(result.plan);
  result.excess =
      std::max<std::int64_t>(0, static_cast<std::int64_t>(result.simulation.peak.count()) - budget);
  return result;
}

std::vector<std::int64_t> Evaluator::excess_by_slot(const Plan& plan, const Slots& slots,
                                                    std::int64_t budget) const {
  ExcessProbe probe(schedule(), slots, budget);
  walk(plan, probe);
  return std::move(probe).take();
}

void Evaluator::walk(const Plan& plan, StepListener& listener) const {
  std::vector<PlannedChunk> chunks;
  for (std::size_t i = 0; i < plan.chunks.size(); ++i) {
    chunks.push_back(
        planned(simulator_.models()[i], plan.chunks[i], plan.limits, simulator_.shard().ranks));
  }
  StepWalk(chunks, schedule(), StepLimits(plan, {}), listener).run();
}

}  // namespace spillway
