#include "plan/planner_evaluate.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace spillway {

bool Evaluated::better_than(const Evaluated& other) const {
  return std::tie(excess, simulation.step_ns, simulation.bytes_out, simulation.peak) <
         std::tie(other.excess, other.simulation.step_ns, other.simulation.bytes_out,
                  other.simulation.peak);
}

Evaluator::Evaluator(const Profile& profile, const Rules& rules, const PassSchedule& schedule)
    : profile_(profile),
      rules_(rules),
      simulator_(profile, schedule),
      structure_(structure_digest(profile)) {
  for (const ChunkProfile& chunk : profile.chunks) {
    matchers_.emplace_back(chunk, profile.layers);
    spaces_.push_back(space_of(chunk, profile, rules, matchers_.back()));
  }
}

Plan Evaluator::plan(const Choice& choice) const {
  Plan plan;
  plan.structure = structure_;
  plan.limits = rules_.limits;
  plan.recompute_collectives = rules_.recompute_collectives;
  plan.notes = rules_.notes;
  for (std::size_t i = 0; i < spaces_.size(); ++i) {
    ChunkPlan chunk = spaces_[i].decided.plan;
    for (std::size_t id = 0; id < chunk.decisions.size(); ++id) {
      if (spaces_[i].decided.open[id]) chunk.decisions[id].action.kind = choice[i].buffers[id];
    }
    plan_recompute(profile_.chunks[i], profile_, rules_, matchers_[i], chunk, choice[i].values);
    plan.chunks.push_back(std::move(chunk));
  }
  return plan;
}

Evaluated Evaluator::evaluate(const Choice& choice, std::int64_t budget) {
  return evaluate(plan(choice), budget);
}

Evaluated Evaluator::evaluate(Plan plan, std::int64_t budget) {
  ++evaluations_;
  Evaluated result{std::move(plan), {}, 0};
  simulator_.set_allowances(Bytes(static_cast<std::uint64_t>(budget)), result.plan);
  result.simulation = simulator_.run(result.plan);
  result.excess =
      std::max<std::int64_t>(0, static_cast<std::int64_t>(result.simulation.peak.count()) - budget);
  return result;
}

}  // namespace spillway
