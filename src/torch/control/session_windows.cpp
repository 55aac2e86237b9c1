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

void SessionCore::plan_by_rules(PassSchedule recorded) {
  adopt_plan(make_plan(*profile_, options_.rules));
  cached_plans_.clear();
  const bool given = options_.offload_window || options_.prefetch_window ||
                     plan_->limits.offload_window || plan_->limits.prefetch_window;
  fitting_ = {};
  fitting_.enabled = !given;
  if (given) return;
  budgeting_.time_updates = 0;
  budgeting_.time_next = has_times(*profile_);
  schedule_ =
      follower_.on_schedule() ? known_part(follower_.schedule(), *profile_) : std::move(recorded);
  fit_windows();
}

void SessionCore::fit_windows() {
  if (!fitting_.enabled) return;
  Plan plan = *plan_;
  for (ChunkPlan& chunk : plan.chunks) {
    chunk.forward_allowance.clear();
    chunk.backward_allowance.clear();
  }
  plan.max_pending_release = plan.max_prefetch = std::nullopt;
  plan.limits.offload_window = plan.limits.prefetch_window = std::nullopt;
  if (++fitting_.fits <= kMaxFits) {
    try {
      set_windows(*profile_, plan, schedule_, shard_model());
    } catch (const Error& error) {
      count_fallback(std::string("constant windows, because none could be fitted: ") +
                     error.what());
    }
  }
  if (plan == *plan_) return;
  tails_.clear();
  plan_ = std::make_shared<const Plan>(std::move(plan));
  lay_out();
}

void SessionCore::begin_fitted_step(const PassSchedule& schedule) {
  if (!fitting_.enabled || record_next_) return;
  plan_or_stay([this] { read_times(/*wait=*/false); });
  plan_or_stay([&] {
    const PassSchedule& expected = schedule.empty() ? fitting_.order : schedule;
    PassSchedule wanted = known_part(expected, *profile_);
    if (wanted.empty() || wanted == schedule_) return;
    cache_plan();
    schedule_ = std::move(wanted);
    if (!take_cached_plan()) fit_windows();
  });
}

void SessionCore::note_order() {
  if (!fitting_.enabled) return;
  std::set<int> chunks;
  for (const ChunkProfile& chunk : profile_->chunks) chunks.insert(chunk.chunk);
  fitting_.order = recorded_schedule(chunks);
}

}  // namespace spillway
