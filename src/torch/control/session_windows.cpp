#include <set>
#include <utility>

#include "spillway/core/error.hpp"
#include "spillway/plan/simulate.hpp"
#include "torch/execute/session_core.hpp"

namespace spillway {
namespace {

/// How many orders of passes get fitted windows after one recording step. Beyond that, where every
/// step has another order, constant windows are used.
constexpr int kMaxFits = 16;

}  // namespace

void SessionCore::begin_fitting() {
  fitting_ = {};
  fitting_.enabled = true;
  fit_windows();
}

void SessionCore::fit_windows() {
  if (!fitting_.enabled) return;
  Plan plan = *current_.plan();
  for (ChunkPlan& chunk : plan.chunks) {
    chunk.forward_allowance.clear();
    chunk.backward_allowance.clear();
  }
  plan.max_pending_release = plan.max_prefetch = std::nullopt;
  plan.limits.offload_window = plan.limits.prefetch_window = std::nullopt;
  if (++fitting_.fits <= kMaxFits) {
    try {
      set_windows(*current_.profile(), plan, current_.schedule(), shard_model());
    } catch (const Error& error) {
      count_fallback(std::string("constant windows, because none could be fitted: ") +
                     error.what());
    }
  }
  if (plan == *current_.plan()) return;
  tails_.clear();
  current_.revise(std::move(plan));
}

void SessionCore::begin_fitted_step(const PassSchedule& schedule) {
  if (!fitting_.enabled || controller_.records_next()) return;
  BudgetPlanner& budget = controller_.budget();
  budget.plan_or_stay([this] { controller_.update_times(/*wait=*/false); });
  budget.plan_or_stay([&] {
    const PassSchedule& expected = schedule.empty() ? fitting_.order : schedule;
    PassSchedule wanted = known_part(expected, *current_.profile());
    if (wanted.empty() || wanted == current_.schedule()) return;
    if (!current_.switch_to(std::move(wanted), budget.problem())) fit_windows();
  });
}

void SessionCore::note_order() {
  if (!fitting_.enabled) return;
  std::set<int> chunks;
  for (const ChunkProfile& chunk : current_.profile()->chunks) chunks.insert(chunk.chunk);
  fitting_.order = recorded_schedule(chunks);
}

}  // namespace spillway
