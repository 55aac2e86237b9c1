#include <algorithm>
#include <utility>

#include "plan/simulate/simulator.hpp"
#include "spillway/core/index.hpp"

namespace spillway {
namespace {

/// Gives targets as limits, and notes the peak and the most bytes that are not managed.
class TargetListener final : public StepListener {
 public:
  explicit TargetListener(const ByteTargets& targets) : targets_(targets) {}

  void computes(const StepPosition& /*position*/, std::int64_t /*ns*/,
                std::int64_t bytes) override {
    note(bytes);
  }
  void repeats(const StepPosition& /*position*/, const ReplayJob& /*job*/,
               std::int64_t bytes) override {
    note(bytes);
  }
  [[nodiscard]] std::int64_t peak() const noexcept { return peak_; }
  [[nodiscard]] std::int64_t most_others() const noexcept { return others_; }

  ByteLimit saved(const StepWalk& walk, const StepPosition& position, int site) override {
    walk_ = &walk;
    return {targets_.forward[to_index(position.chunk)][to_index(site)], targets_.pending_release};
  }
  ByteLimit unpacked(const StepWalk& /*walk*/, const StepPosition& position, int unpack,
                     std::int64_t /*fetched*/) override {
    return {targets_.backward[to_index(position.chunk)][to_index(unpack)], targets_.prefetch};
  }

 private:
  void note(std::int64_t bytes) {
    peak_ = std::max(peak_, bytes);
    others_ = std::max(others_, bytes - (walk_ != nullptr ? walk_->managed_bytes() : 0));
  }

  const ByteTargets& targets_;
  const StepWalk* walk_ = nullptr;  // From the first save on.
  std::int64_t peak_ = 0;
  std::int64_t others_ = 0;
};

StepResidency only_held(const StepResidency& lists) {
  StepResidency held(lists.size());
  for (std::size_t i = 0; i < lists.size(); ++i) held[i].held = lists[i].held;
  return held;
}

void remove_lists(Plan& plan) {
  for (ChunkPlan& chunk : plan.chunks) chunk.residency = {};
  plan.cap.reset();
}

}  // namespace

void Simulator::record(const StepLimits& limits, StepListener& listener, Plan& plan) const {
  remove_lists(plan);
  const std::vector<PlannedChunk> chunks = planned_chunks(plan);
  StepResidency held;
  StepResidency lists;
  // Buffers that are not copied leave host memory to others, so more may be released than before.
  constexpr int kSteps = 4;
  for (int step = 0; step < kSteps; ++step) {
    lists.clear();
    StepWalk walk(chunks, schedule_, limits, listener);
    if (step > 0) walk.use(held);
    walk.record_to(lists);
    walk.run();
    if (!walk.found_no_room()) break;
    StepResidency now = only_held(lists);
    if (step == 0) held.resize(lists.size());
    if (now == held) break;
    if (step + 1 < kSteps) {
      held = std::move(now);
    } else {
      for (std::size_t i = 0; i < lists.size(); ++i) lists[i].held = held[i].held;
    }
  }
  for (std::size_t i = 0; i < plan.chunks.size(); ++i) {
    plan.chunks[i].residency.unpack_order = profile_.chunks[i].unpack_order;
  }
  std::size_t pass = 0;
  for (const PassStep& step : schedule_) {
    if (step.backward) continue;
    const auto chunk = std::find_if(plan.chunks.begin(), plan.chunks.end(),
                                    [&](const auto& each) { return each.chunk == step.chunk; });
    chunk->residency.add(std::move(lists[pass++]));
  }
}

std::int64_t Simulator::set_residency(const ByteTargets& targets, Plan& plan) const {
  StepLimits limits(plan, {});
  limits.engine.offload_window = limits.engine.prefetch_window = EngineLimits::kNone;
  limits.engine.cap = EngineLimits::kNone;
  TargetListener listener(targets);
  record(limits, listener, plan);
  const std::int64_t room = std::max<std::int64_t>(0, targets.budget - listener.most_others());
  plan.cap = Bytes(static_cast<std::uint64_t>(room));
  return listener.peak();
}

void Simulator::set_residency_of_windows(const Limits& windows, Plan& plan) const {
  plan.cap.reset();
  StepListener nobody;
  record(StepLimits(plan, windows), nobody, plan);
}

}  // namespace spillway
