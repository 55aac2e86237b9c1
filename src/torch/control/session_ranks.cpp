#include <algorithm>
#include <optional>
#include <utility>

#include "spillway/core/error.hpp"
#include "torch/execute/session_core.hpp"

namespace spillway {

void SessionCore::set_shard_group(std::shared_ptr<ShardGroup> group) {
  const std::lock_guard lock(mutex_);
  if (in_step()) throw InvalidArgument("shard_group", "a step is under way; end it first");
  sharding_.set_group(std::move(group));
  if (current_.plan() == nullptr) return;
  renew_lists();  // Lists and the order of reloads are of so many ranks.
  lay_out();
}

void SessionCore::agree_on_collectives() {
  collectives_.skip();
  const Plan* const plan = current_.plan().get();
  const bool may_repeat = plan != nullptr && plan->recompute_collectives;
  if (!options_.rules.recompute_collectives && !may_repeat) return;
  if (collectives_.agree(may_repeat && !controller_.records_next() ? plan : nullptr)) {
    count_fallback("the ranks of a group plan to repeat different collectives: none is repeated");
  }
  collectives_.require_known();
}

void SessionCore::agree_on_sharding(bool verifies_now) {
  const std::optional<std::int64_t> prefetch_window =
      sharding_.begin_step({.records = controller_.records_next(),
                            .compares = options_.budget && options_.rules.plan_shards,
                            .verifies = verifies_now,
                            .prefetch_window = machine_.limits().prefetch_window});
  if (!prefetch_window) return;
  EngineLimits limits = machine_.limits();
  limits.shard_prefetch_window = *prefetch_window;
  machine_.set_limits(limits);
}

void SessionCore::end_sharding() noexcept {
  std::optional<Plan> plan = sharding_.end_step(passes_, current_.plan().get());
  if (!plan) return;
  try {
    current_.revise(std::move(*plan));
    renew_lists();
  } catch (...) {
    sharding_.lose_group();
  }
}

// With a budget, the first rank plans for all.

bool SessionCore::plans_together() const {
  return options_.budget && sharding_.group() != nullptr && may_shard(options_.rules);
}

void SessionCore::remember_plan() {
  const bool shared = plans_together() && !controller_.due().due(StepMode::kInterim);
  shared_plan_.adopt(shared ? current_.plan() : nullptr);
}

void SessionCore::share_plan() {
  if (!plans_together()) return;
  ShardGroup& group = *sharding_.group();
  BudgetPlanner& planner = controller_.budget();
  const bool has_plan = shared_plan_.has_plan() && !controller_.due().due(StepMode::kInterim) &&
                        !controller_.records_next();
  const Bytes budget = has_plan ? current_.plan()->budget.value_or(Bytes(0)) : Bytes(0);
  const Bytes peak = has_plan ? planner.watch().measured_peak() : Bytes(0);
  const SharedPlan::Answer answer =
      shared_plan_.share(group, {has_plan, peak - std::min(peak, budget), planner.problem().error});
  if (answer.problem) {
    if (planner.problem().error != nullptr) planner.throw_problem();
    planner.problem().text = answer.problem->text;
    answer.problem->raise();
  }
  // Replanning here would give the first rank a plan that the others do not have in this step.
  if (group.rank() == 0 && has_plan) planner.watch().note_excess_of_others(answer.excess);
  if (!answer.plan || controller_.records_next() || current_.profile() == nullptr) return;
  Plan plan = plan_from_json(*answer.plan, "the plan of the shard group's first rank");
  if (!made_for(plan, *current_.profile())) {
    count_fallback("the plan of the shard group's first rank is for another structure");
    return;
  }
  controller_.adopt_shared(plan);
}

}  // namespace spillway
