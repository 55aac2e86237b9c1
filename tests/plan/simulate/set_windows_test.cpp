#include <set>
#include <string>

#include <gtest/gtest.h>

#include "plan/simulate/simulator.hpp"
#include "plan/support/synthetic_timeline.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/rules.hpp"
#include "spillway/plan/simulate.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::llama_profile;

Plan offloading(const Profile& profile, const std::string& modules,
                const std::string& limits = "") {
  return make_plan(
      profile, parse_rules("[[rule]]\nmodule = [" + modules + "]\naction = \"offload\"\n" + limits,
                           "r.toml"));
}

/// One forward, one backward, on one of four stages.
PassSchedule one_forward_one_backward(int stage, int micro_batches) {
  const int ahead = 3 - stage;
  PassSchedule schedule;
  for (int i = 0; i < micro_batches + ahead; ++i) {
    if (i < micro_batches) schedule.push_back({0, i, false});
    if (i >= ahead) schedule.push_back({0, i - ahead, true});
  }
  return schedule;
}

struct Found {
  Plan plan;
  Simulation kept;
  Simulation large;  ///< With windows of a gibibyte.
  Simulation least;  ///< Without windows.
  Simulation found;

  /// Of what the plan can lower the peak by.
  [[nodiscard]] double reached() const {
    const auto bytes = [](Bytes more, Bytes less) {
      return static_cast<double>(more.count()) - static_cast<double>(less.count());
    };
    return bytes(kept.peak, found.peak) / bytes(kept.peak, least.peak);
  }
};

Found windows_of(const Profile& profile, Plan plan, const PassSchedule& schedule = {}) {
  SimulateOptions options;
  options.schedule = schedule;
  SimulateOptions nothing = options;
  nothing.windows.offload_window = nothing.windows.prefetch_window = 0_B;
  Found found;
  found.kept = simulate(profile, make_plan(profile, {}), options);
  found.large = simulate(profile, plan, options);
  found.least = simulate(profile, plan, nothing);
  set_windows(profile, plan, schedule);
  found.found = simulate(profile, plan, options);
  found.plan = std::move(plan);
  return found;
}

void slow_down(LinkSpeed& link, double share) {
  for (double* speed : {&link.out, &link.back, &link.out_with_back, &link.back_with_out}) {
    *speed *= share;
  }
}

TEST(SetWindows, ReachesWhatThePlanCanOnEveryStageOfAPipelineAtNoCost) {
  const Profile profile = llama_profile(4);
  const Plan plan = offloading(profile, R"("core_attn", "attn_proj")");
  for (int stage = 0; stage < 4; ++stage) {
    SCOPED_TRACE(stage);
    const Found found = windows_of(profile, plan, one_forward_one_backward(stage, 16));
    EXPECT_FALSE(found.plan.chunks[0].residency.empty());
    EXPECT_GE(found.reached(), 0.995);
    EXPECT_LE(found.found.step_ns, found.large.step_ns + found.large.step_ns / 500);
    EXPECT_LT(found.found.peak, found.large.peak);
    EXPECT_LT(found.found.step_ns, found.least.step_ns);
  }
}

/// Bytes on the device, over the time of the step.
double mean_bytes(const Simulation& simulation) {
  double sum = 0;
  for (std::size_t i = 0; i + 1 < simulation.memory.size(); ++i) {
    const MemoryPoint& point = simulation.memory[i];
    sum += static_cast<double>(point.bytes) *
           static_cast<double>(simulation.memory[i + 1].ns - point.ns);
  }
  return sum / static_cast<double>(simulation.step_ns);
}

TEST(SetWindows, KeepFewerPendingReleasesWhereThatCostsNoTime) {
  Profile slow = llama_profile(4);
  slow_down(slow.link, 0.9);
  for (int stage = 0; stage < 4; ++stage) {
    SCOPED_TRACE(stage);
    SimulateOptions options;
    options.schedule = one_forward_one_backward(stage, 16);
    options.trace = true;
    const Simulator simulator(slow, options.schedule);
    Plan plan = offloading(slow, R"("core_attn", "attn_proj")");
    Plan nothing = plan;
    (void)simulator.set_residency(0_B, nothing);
    ByteTargets targets =
        simulator.set_residency(simulate(slow, nothing, options).peak + 200_MiB, plan);
    const Plan free = plan;
    simulator.limit_pending_release(targets, plan);
    EXPECT_LT(targets.pending_release, EngineLimits::kNone);
    EXPECT_LT(targets.prefetch, EngineLimits::kNone);
    const Simulation found = simulate(slow, plan, options);
    const Simulation unlimited = simulate(slow, free, options);
    EXPECT_LE(found.peak, unlimited.peak);
    EXPECT_LE(found.step_ns, unlimited.step_ns + unlimited.step_ns / 1000);
    EXPECT_LT(mean_bytes(found), mean_bytes(unlimited));
  }
}

TEST(SetWindows, ReachesItInOnePassOfAllLayers) {
  const Profile profile = llama_profile(16);
  for (const char* modules : {R"("core_attn")", R"("attn_norm", "core_attn", "attn_proj")"}) {
    const Found found = windows_of(profile, offloading(profile, modules));
    EXPECT_GE(found.reached(), 0.995) << modules;
    EXPECT_LE(found.found.step_ns, found.large.step_ns + found.large.step_ns / 500) << modules;
  }
}

/// As set_windows() chooses them where it knows no times.
Simulation under_windows_of_a_layer(const Profile& profile, Plan plan,
                                    const PassSchedule& schedule = {}) {
  Profile untimed = profile;
  for (ChunkProfile& chunk : untimed.chunks) chunk.timeline.clear();
  set_windows(untimed, plan, schedule);
  set_windows(profile, plan, schedule);
  SimulateOptions options;
  options.schedule = schedule;
  return simulate(profile, plan, options);
}

TEST(SetWindows, TakeNoLongerThanThoseOfALayerWhereTheLinkIsFull) {
  for (const double share : {0.5, 0.2, 0.05}) {
    SCOPED_TRACE(share);
    Profile profile = llama_profile(8);
    const Plan plan = offloading(profile, R"("core_attn", "attn_norm", "mlp")");
    slow_down(profile.link, share);
    const Simulation constant = under_windows_of_a_layer(profile, plan);
    const Found found = windows_of(profile, plan);
    EXPECT_LE(found.found.step_ns, constant.step_ns + constant.step_ns / 100);
    EXPECT_LE(found.found.peak, constant.peak);
    EXPECT_LT(found.found.step_ns, found.least.step_ns);
  }
}

TEST(SetWindows, WaitForMemoryAsLongAsASlowdownAllows) {
  Profile profile = llama_profile(4);
  slow_down(profile.link, 0.5);
  const char* const modules = R"("core_attn", "attn_proj", "mlp_norm")";
  const PassSchedule schedule = one_forward_one_backward(2, 16);
  const Found free = windows_of(profile, offloading(profile, modules), schedule);
  const Found slower =
      windows_of(profile, offloading(profile, modules, "[limits]\nslowdown = 0.03\n"), schedule);
  EXPECT_LT(free.reached(), 0.9);
  EXPECT_GE(slower.reached(), 0.995);
  EXPECT_GT(slower.found.step_ns, free.found.step_ns);
  const std::int64_t constant =
      under_windows_of_a_layer(profile, offloading(profile, modules), schedule).step_ns;
  EXPECT_LE(free.found.step_ns, constant + constant / 500);
  EXPECT_LE(slower.found.step_ns, constant + constant * 3 / 100);
}

TEST(SetWindows, NeedLessTheMoreASlowdownAllows) {
  Profile profile = llama_profile(8);
  slow_down(profile.link, 0.3);
  std::set<std::uint64_t> peaks;
  Bytes before = Bytes(~std::uint64_t{0});
  for (const char* slowdown : {"0.001", "0.02", "0.04", "0.06", "0.08", "0.1"}) {
    const Found found =
        windows_of(profile, offloading(profile, R"("core_attn", "attn_norm", "mlp")",
                                       std::string("[limits]\nslowdown = ") + slowdown + "\n"));
    EXPECT_LE(found.found.peak, before) << slowdown;
    before = found.found.peak;
    peaks.insert(before.count());
  }
  EXPECT_GE(peaks.size(), 4U);
}

TEST(SetWindows, AreThoseOfALayerWithoutTimes) {
  Profile profile = llama_profile(4);
  const Plan plan = offloading(profile, R"("core_attn")");
  for (ChunkProfile& chunk : profile.chunks) chunk.timeline.clear();
  Plan set = plan;
  set_windows(profile, set);
  ASSERT_TRUE(set.limits.offload_window);
  EXPECT_EQ(set.limits.prefetch_window, set.limits.offload_window);
  EXPECT_GT(*set.limits.offload_window, 100_MiB);
  EXPECT_LT(*set.limits.offload_window, 500_MiB);
}

TEST(SetWindows, FollowThoseThatAreGiven) {
  const Profile profile = llama_profile(4);
  SimulateOptions options;
  options.windows.offload_window = 1_MiB;
  for (const char* limits :
       {"", "[limits]\noffload_window = \"1 GiB\"\n", "[limits]\nprefetch_window = \"1 MiB\"\n"}) {
    const Plan before = offloading(profile, R"("core_attn")", limits);
    Plan plan = before;
    set_windows(profile, plan, {}, {}, options.windows);
    EXPECT_EQ(plan.limits, before.limits);
    EXPECT_EQ(plan.cap, std::nullopt);
    EXPECT_FALSE(plan.chunks[0].residency.empty());
    EXPECT_EQ(simulate(profile, plan).peak, simulate(profile, before, options).peak) << limits;
  }
}

TEST(SetWindows, DoNotReplaceLists) {
  const Profile profile = llama_profile(4);
  Plan plan = offloading(profile, R"("core_attn")");
  set_windows(profile, plan);
  const Plan set = plan;
  set_windows(profile, plan);
  EXPECT_EQ(plan, set);
}

TEST(SetWindows, AreNotNeededWhereNothingIsOffloaded) {
  const Profile profile = llama_profile(4);
  Plan plan = make_plan(profile, {});
  const Plan before = plan;
  set_windows(profile, plan);
  EXPECT_EQ(plan, before);
}

}  // namespace
}  // namespace spillway
