#include <algorithm>
#include <limits>
#include <utility>

#include "plan/simulate/backward_setter.hpp"
#include "plan/simulate/forward_setter.hpp"
#include "plan/simulate/last_save_setter.hpp"
#include "plan/simulate/simulator.hpp"

namespace spillway {
namespace {

constexpr std::int64_t kNoLimit = std::int64_t{1} << 62U;

std::int64_t to_signed(Bytes bytes) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(bytes.count(), kNoLimit));
}

/// Unpacks of caller-owned buffers, at which a session is not asked: as if it were.
void fill_gaps(std::vector<std::int64_t>& allowances) {
  std::int64_t next = 0;
  for (std::size_t i = allowances.size(); i-- > 0;) {
    if (allowances[i] == kNoAllowance) allowances[i] = next;
    next = allowances[i];
  }
}

std::vector<Bytes> to_bytes(const std::vector<std::int64_t>& numbers) {
  std::vector<Bytes> bytes;
  bytes.reserve(numbers.size());
  for (const std::int64_t each : numbers) {
    bytes.emplace_back(static_cast<std::uint64_t>(std::max<std::int64_t>(each, 0)));
  }
  return bytes;
}

/// How passes in flight share the budget.
struct Shares {
  std::int64_t reserve = 0;  ///< See LastSaveSetter.
  int carried = 100;         ///< See BackwardSetter.
};

/// Simulates the plan with no limits but those of this listener.
void find_allowances(const std::vector<PlannedChunk>& chunks, const PassSchedule& schedule,
                     const StepLimits& limits, std::int64_t budget, const Shares& shares,
                     Plan& plan) {
  Allowances forward;
  Allowances backward;
  for (const PlannedChunk& chunk : chunks) {
    forward.emplace_back(chunk.model->save_moment.size(), kNoAllowance);
    backward.emplace_back(chunk.model->unpack_moment.size(), kNoAllowance);
  }
  const auto walk = [&](StepListener& listener) {
    StepWalk(chunks, schedule, limits, listener, {}).run();
  };
  ForwardSetter forward_setter(budget, forward);
  walk(forward_setter);
  // What one pass releases changes what others must release.
  constexpr int kRounds = 8;
  bool changed = true;
  for (int round = 0; round < kRounds && changed; ++round) {
    LastSaveSetter last_save_setter(budget, shares.reserve, forward);
    walk(last_save_setter);
    last_save_setter.finish();
    changed = last_save_setter.changed() && schedule.size() > 2;
  }
  BackwardSetter backward_setter(budget, shares.carried, forward);
  walk(backward_setter);
  backward_setter.fill_in(backward);
  for (std::size_t i = 0; i < plan.chunks.size(); ++i) {
    fill_gaps(backward[i]);
    plan.chunks[i].forward_allowance = to_bytes(forward[i]);
    plan.chunks[i].backward_allowance = to_bytes(backward[i]);
  }
}

/// The peak.
class Peak final : public StepListener {
 public:
  void computes(const StepPosition& /*position*/, std::int64_t /*ns*/,
                std::int64_t bytes) override {
    bytes_ = std::max(bytes_, bytes);
  }
  void repeats(const StepPosition& /*position*/, const ReplayJob& /*job*/,
               std::int64_t bytes) override {
    bytes_ = std::max(bytes_, bytes);
  }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

/// Passes in flight share one allowance a site, which may suit some of them less than others: aims
/// lower until the budget holds. Returns the bytes that are reached.
std::int64_t fit(const std::vector<PlannedChunk>& chunks, const PassSchedule& schedule,
                 const StepLimits& limits, std::int64_t budget, const Shares& shares, Plan& plan) {
  constexpr int kRounds = 4;
  std::int64_t target = budget;
  std::int64_t reached = kNoAllowance;
  for (int round = 0; round < kRounds && reached > budget; ++round) {
    if (round > 0) target = std::max<std::int64_t>(0, target - (reached - budget));
    find_allowances(chunks, schedule, limits, target, shares, plan);
    Peak peak;
    StepWalk(chunks, schedule, limits, peak, {}).run();
    reached = peak.bytes();
  }
  return reached;
}

}  // namespace

void Simulator::set_allowances(Bytes budget, Plan& plan) const {
  const std::vector<PlannedChunk> chunks = planned_chunks(plan);
  StepLimits limits;
  limits.windows = false;
  limits.set_shard_windows(plan.limits);
  if (plan.limits.host) limits.host = to_signed(*plan.limits.host);
  const std::int64_t wanted = to_signed(budget);
  if (schedule_.size() <= 2) return find_allowances(chunks, schedule_, limits, wanted, {}, plan);
  // The newest pass and the reloads of the oldest compete for memory: the fastest shares win.
  Plan best;
  Shares fastest;
  std::pair<std::int64_t, std::int64_t> least{kNoAllowance, kNoAllowance};  // Excess, then time.
  const auto try_with = [&](const Shares& shares) {
    const std::int64_t reached = fit(chunks, schedule_, limits, wanted, shares, plan);
    const std::pair found{std::max<std::int64_t>(0, reached - wanted), run(plan).step_ns};
    if (found >= least) return;
    least = found;
    best = plan;
    fastest = shares;
  };
  for (const int percent : {0, 5, 10, 20, 40}) try_with({wanted / 100 * percent, 100});
  for (const int carried : {50, 0}) try_with({fastest.reserve, carried});
  plan = std::move(best);
}

}  // namespace spillway
