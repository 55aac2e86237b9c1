#include <algorithm>
#include <optional>
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

bool has_lists(const Plan& plan) {
  return std::ranges::any_of(plan.chunks, [](const auto& each) { return !each.residency.empty(); });
}

}  // namespace

void SessionCore::begin_fitting() {
  const Limits& limits = current_.plan()->limits;
  const auto either = [](std::optional<Bytes> rules, std::optional<Bytes> option) {
    return rules ? rules : option;
  };
  fitting_ = {};
  fitting_.enabled = true;
  fitting_.windows.offload_window = either(limits.offload_window, options_.offload_window);
  fitting_.windows.prefetch_window = either(limits.prefetch_window, options_.prefetch_window);
  renew_lists();
}

void SessionCore::fit_lists(Plan& plan) {
  plan.limits.offload_window = fitting_.windows.offload_window;
  plan.limits.prefetch_window = fitting_.windows.prefetch_window;
  if (++fitting_.fits > kMaxFits) return;
  set_windows(*current_.profile(), plan, current_.schedule(), shard_model());
}

void SessionCore::renew_lists() {
  if (current_.profile() == nullptr || current_.plan() == nullptr) return;
  if (!fitting_.enabled && !current_.is_given() && !has_lists(*current_.plan())) return;
  Plan plan = *current_.plan();
  for (ChunkPlan& chunk : plan.chunks) chunk.residency = {};
  try {
    if (fitting_.enabled) {
      fit_lists(plan);
    } else if (plan.budget) {
      const Bytes reserve = std::min(controller_.budget().watch().reserve(), *plan.budget);
      set_residency(*current_.profile(), *plan.budget - reserve, plan, current_.schedule(),
                    shard_model());
    } else {
      Limits windows;
      windows.offload_window = options_.offload_window;
      windows.prefetch_window = options_.prefetch_window;
      set_windows(*current_.profile(), plan, current_.schedule(), shard_model(), windows);
    }
  } catch (const Error& error) {
    count_fallback(std::string("constant windows, because none could be fitted: ") + error.what());
  }
  if (plan == *current_.plan()) return;
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
    if (!current_.switch_to(std::move(wanted), budget.problem())) renew_lists();
  });
}

void SessionCore::note_order() {
  if (!fitting_.enabled) return;
  std::set<int> chunks;
  for (const ChunkProfile& chunk : current_.profile()->chunks) chunks.insert(chunk.chunk);
  fitting_.order = recorded_schedule(chunks);
}

}  // namespace spillway
