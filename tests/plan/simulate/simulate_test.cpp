#include "spillway/plan/simulate.hpp"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/profile/timeline.hpp"
#include "plan/support/graph_builder.hpp"
#include "plan/support/plan_queries.hpp"
#include "plan/support/random_step.hpp"
#include "plan/support/recompute_queries.hpp"
#include "plan/support/synthetic_profile.hpp"
#include "plan/support/synthetic_timeline.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/compute_times.hpp"

namespace spillway {
namespace {

using testing::GraphBuilder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::plan_by;

constexpr const char* kOffload = "[[rule]]\naction = \"offload\"\n";
constexpr std::uint64_t kSize = 10'000'000;
constexpr std::int64_t kMillisecond = 1'000'000;

/// `calls` calls of a millisecond that each save a buffer of 10 MB; the link takes `factor`
/// milliseconds for one of them, each way.
Profile row_of_calls(int calls, double factor) {
  GraphBuilder graph;
  for (int i = 0; i < calls; ++i) {
    graph.save(graph.call({.makes = {kSize}, .ns = kMillisecond}), "saved");
  }
  Profile profile = graph.profile();
  const double speed = 10e9 / factor;
  profile.link = {speed, speed, speed, speed};
  testing::add_timelines(profile);
  for (Moment& moment : profile.chunks[0].timeline) moment.untracked_bytes = 0;
  return profile;
}

Simulation within(const Profile& profile, Plan plan, std::uint64_t budget,
                  const PassSchedule& schedule = {}) {
  set_residency(profile, Bytes(budget), plan, schedule);
  return simulate(profile, plan, {.schedule = schedule, .trace = true, .windows = {}});
}

MomentKind kind_at(const Profile& profile, int moment) {
  return profile.chunks[0].timeline.at(static_cast<std::size_t>(moment)).kind;
}

TEST(Simulate, AddsNothingWhereEverythingIsKept) {
  const Profile profile = row_of_calls(10, 1);
  const Simulation simulation = simulate(profile, plan_by(profile, ""));
  EXPECT_EQ(simulation.step_ns, 30 * kMillisecond);
  EXPECT_EQ(simulation.peak, Bytes(10 * kSize));
  EXPECT_EQ(simulation.waits, SimulatedWaits{});
  EXPECT_EQ(simulation.bytes_out, Bytes(0));
  EXPECT_EQ(simulation.host_peak, Bytes(0));
  EXPECT_THAT(simulation.spans, IsEmpty());
  EXPECT_THAT(simulation.memory, IsEmpty());
}

TEST(Simulate, HidesCopiesThatTheLinkKeepsUpWith) {
  const Profile profile = row_of_calls(10, 1);
  const Simulation simulation = within(profile, plan_by(profile, kOffload), 4 * kSize);
  EXPECT_EQ(simulation.step_ns, 30 * kMillisecond);
  EXPECT_EQ(simulation.peak, Bytes(4 * kSize));
  EXPECT_EQ(simulation.bytes_out, simulation.bytes_back);
  EXPECT_EQ(simulation.host_peak, simulation.bytes_out);
}

TEST(Simulate, TakesLongerBesideCopiesThatSlowComputeDown) {
  Profile profile = row_of_calls(10, 1);
  profile.link.slows_out = 0.02;
  profile.link.slows_back = 0.05;
  const Plan plan = plan_by(profile, kOffload);
  const Simulation simulation = within(profile, plan, 4 * kSize);
  EXPECT_EQ(simulation.waits, SimulatedWaits{});
  EXPECT_EQ(simulation.bytes_out, Bytes(6 * kSize));
  // Of six milliseconds each way, 1/51 and 1/21 are the slowing's.
  const double longer = 6e6 * (0.02 / 1.02 + 0.05 / 1.05);
  EXPECT_NEAR(static_cast<double>(simulation.step_ns), 30e6 + longer, 10);
  EXPECT_NEAR(static_cast<double>(simulation.slowed_ns), longer, 10);
  EXPECT_EQ(simulate(profile, plan_by(profile, "")).step_ns, 30 * kMillisecond);
}

/// The pieces of a slowed step take their times alone once the slowdown is subtracted.
TEST(Simulate, TakesTheSlowingOutOfTimesThatWereMeasuredBesideCopies) {
  std::mt19937_64 random(7);
  int slowed_profiles = 0;
  for (int i = 0; i < 200; ++i) {
    Profile profile = testing::random_step_profile(random);
    profile.link.slows_out = 0.03;
    profile.link.slows_back = 0.3;
    const Plan plan = plan_by(profile, kOffload);
    const PassSchedule schedule = one_pass(profile);
    const Simulation simulation =
        simulate(profile, plan, {.schedule = schedule, .trace = true, .windows = {}});
    Profile measured = profile;
    for (ChunkProfile& chunk : measured.chunks) {
      for (Moment& moment : chunk.timeline) moment.compute_ns = 0;
      for (const SimulatedSpan& span : simulation.spans) {
        const bool piece =
            span.work == SimulatedWork::kForward || span.work == SimulatedWork::kBackward;
        if (!piece || span.pass.chunk != chunk.chunk) continue;
        chunk.timeline[static_cast<std::size_t>(span.moment)].compute_ns +=
            span.end_ns - span.begin_ns;
      }
      add_up_times(chunk);
    }
    const Profile found = without_slowing(measured, plan, {.schedule = schedule, .windows = {}});
    for (std::size_t k = 0; k < profile.chunks.size(); ++k) {
      const ChunkProfile& wanted = profile.chunks[k];
      if (measured.chunks[k].timeline != wanted.timeline) ++slowed_profiles;
      for (std::size_t m = 0; m < wanted.timeline.size(); ++m) {
        EXPECT_NEAR(static_cast<double>(found.chunks[k].timeline[m].compute_ns),
                    static_cast<double>(wanted.timeline[m].compute_ns), 3)
            << i << ", moment " << m;
      }
    }
  }
  EXPECT_GT(slowed_profiles, 50);
}

TEST(Simulate, WaitsForALinkThatIsTooSlow) {
  const Profile profile = row_of_calls(10, 3);
  const Simulation simulation = within(profile, plan_by(profile, kOffload), 4 * kSize);
  EXPECT_EQ(simulation.peak, Bytes(4 * kSize));
  EXPECT_GT(simulation.waits.release_ns, 0);
  EXPECT_GT(simulation.waits.reload_ns, 0);
  EXPECT_EQ(simulation.step_ns,
            30 * kMillisecond + simulation.waits.release_ns + simulation.waits.reload_ns);
}

/// Ten buffers and room for four: six go, the first at 1 ms. Each takes 3 ms.
TEST(Simulate, GivesTheTimesThatFollowFromTheSpeeds) {
  const Profile profile = row_of_calls(10, 3);
  const Simulation simulation = within(profile, plan_by(profile, kOffload), 4 * kSize);
  ASSERT_EQ(simulation.transfers.size(), 6U);
  for (int i = 0; i < 6; ++i) {
    const SimulatedTransfer& transfer = simulation.transfers[static_cast<std::size_t>(i)];
    EXPECT_EQ(transfer.buffer, i);
    EXPECT_EQ(transfer.out_begin_ns, (1 + 3 * i) * kMillisecond);
    EXPECT_EQ(transfer.out_end_ns, (4 + 3 * i) * kMillisecond);
  }
}

TEST(Simulate, CopiesNothingThatIsStillThereWhenBackwardBegins) {
  const Profile profile = row_of_calls(10, 1);
  const Simulation roomy = within(profile, plan_by(profile, kOffload), 10 * kSize);
  EXPECT_EQ(roomy.bytes_out, Bytes(0));
  EXPECT_EQ(roomy.peak, Bytes(10 * kSize));
  const Simulation tight = within(profile, plan_by(profile, kOffload), 7 * kSize);
  EXPECT_EQ(tight.bytes_out, Bytes(3 * kSize));
}

TEST(Simulate, GoesByWindowsWhereAPlanHasNoLists) {
  const Profile profile = row_of_calls(10, 1);
  Plan plan = plan_by(profile, kOffload);
  plan.limits.offload_window = Bytes(2 * kSize);
  plan.limits.prefetch_window = Bytes(kSize);
  const Simulation simulation = simulate(profile, plan);
  EXPECT_EQ(simulation.bytes_out, Bytes(10 * kSize)) << "which of them stay is not known";
  EXPECT_EQ(simulation.bytes_back, Bytes(8 * kSize));
  EXPECT_EQ(simulation.peak, Bytes(3 * kSize));
  set_windows(profile, plan);
  const Simulation listed = simulate(profile, plan);
  EXPECT_EQ(listed.bytes_out, Bytes(8 * kSize));
  EXPECT_EQ(listed.bytes_back, Bytes(8 * kSize));
  EXPECT_EQ(listed.peak, Bytes(3 * kSize));
  plan = plan_by(profile, kOffload);
  SimulateOptions options;
  options.windows.offload_window = Bytes(5 * kSize);
  EXPECT_EQ(simulate(profile, plan, options).bytes_back, Bytes(5 * kSize));
}

TEST(Simulate, KeepsWhatTheHostHasNoRoomFor) {
  const Profile profile = row_of_calls(10, 1);
  Plan plan = plan_by(profile, kOffload);
  plan.limits.host = Bytes(3 * kSize);
  plan.limits.offload_window = Bytes(0);
  plan.limits.prefetch_window = Bytes(0);
  const Simulation simulation = simulate(profile, plan);
  EXPECT_EQ(simulation.host_peak, Bytes(3 * kSize));
  EXPECT_EQ(simulation.peak, Bytes(8 * kSize)) << "seven stay, one is fetched";
}

TEST(Simulate, RepeatsWhatIsRecomputed) {
  GraphBuilder graph;
  graph.save(graph.call({.makes = {1000}, .ns = 10}), "kept");
  const int between = graph.call({.reads = {0}, .makes = {500}, .ns = 20});
  graph.save(graph.call({.reads = {between}, .makes = {2000}, .ns = 40}), "recomputed");
  Profile profile = graph.profile();
  testing::add_timelines(profile, {.backward_ns = 100});
  for (Moment& moment : profile.chunks[0].timeline) moment.untracked_bytes = 0;
  const Plan plan = plan_by(profile, testing::kRecompute);
  const Simulation simulation = simulate(profile, plan);
  EXPECT_EQ(simulation.replay_ns, 60);
  EXPECT_NEAR(static_cast<double>(simulation.step_ns), 70 + 100 + 60, 2);
  EXPECT_EQ(simulation.peak, Bytes(3500)) << "while it is repeated";
  EXPECT_TRUE(simulation.peak_location.pass.backward);
  EXPECT_EQ(kind_at(profile, simulation.peak_location.moment), MomentKind::kUnpack);
}

TEST(Simulate, SaysWhereThePeakIs) {
  GraphBuilder graph;
  graph.save(graph.call({.name = "aten::small", .scope = "first"}), "saved");
  graph.call({.name = "aten::large", .scope = "second", .makes = {5000}});
  Profile profile = graph.profile();
  testing::add_timelines(profile);
  for (Moment& moment : profile.chunks[0].timeline) {
    if (moment.kind != MomentKind::kCallEnds) moment.untracked_bytes = 0;
  }
  Simulation simulation = simulate(profile, plan_by(profile, ""));
  EXPECT_EQ(simulation.peak_location.what, "aten::large");
  EXPECT_EQ(simulation.peak_location.scope, "second");
  EXPECT_FALSE(simulation.peak_location.pass.backward);
  EXPECT_EQ(kind_at(profile, simulation.peak_location.moment), MomentKind::kCallEnds);
  profile.chunks[0].timeline.back().untracked_bytes = 100'000;
  simulation = simulate(profile, plan_by(profile, ""));
  EXPECT_EQ(simulation.peak_location.what, "aten::use");
  EXPECT_EQ(simulation.peak_location.scope, "saved");
  EXPECT_TRUE(simulation.peak_location.pass.backward);
}

TEST(Simulate, CountsWhatTheModelStillHolds) {
  Profile profile = row_of_calls(3, 1);
  Plan plan = plan_by(profile, kOffload);
  plan.limits.offload_window = Bytes(0);
  plan.limits.prefetch_window = Bytes(0);
  EXPECT_EQ(simulate(profile, plan).peak, Bytes(2 * kSize)) << "one is used, one comes";
  for (BufferProfile& buffer : profile.chunks[0].buffers) {
    buffer.last_forward_use = static_cast<int>(profile.chunks[0].timeline.size()) / 2;
  }
  EXPECT_GE(simulate(profile, plan).peak, Bytes(3 * kSize));
}

TEST(Simulate, RunsPassesInFlight) {
  const Profile profile = row_of_calls(4, 1);
  const PassSchedule schedule = {{0, 0, false}, {0, 1, false}, {0, 2, false},
                                 {0, 0, true},  {0, 1, true},  {0, 2, true}};
  SimulateOptions options;
  options.schedule = schedule;
  const Simulation kept = simulate(profile, plan_by(profile, ""), options);
  EXPECT_EQ(kept.step_ns, 36 * kMillisecond);
  EXPECT_EQ(kept.peak, Bytes(12 * kSize));
  const Simulation offloaded = within(profile, plan_by(profile, kOffload), 4 * kSize, schedule);
  EXPECT_EQ(offloaded.peak, Bytes(4 * kSize));
  bool across = false;
  for (const SimulatedTransfer& transfer : offloaded.transfers) {
    across = across || (transfer.reloaded >= 0 &&
                        transfer.reloaded_in.micro_batch != transfer.pass.micro_batch);
  }
  EXPECT_TRUE(across) << "the next pass's buffers are reloaded while this one's backward runs";
}

/// One pass in flight beside the one whose backward runs, as on the last stage but one.
TEST(Simulate, PrefetchesForTheNewestPassToo) {
  const Profile profile = row_of_calls(4, 1);
  SimulateOptions options;
  options.schedule = {{0, 0, false}, {0, 1, false}, {0, 0, true},
                      {0, 2, false}, {0, 1, true},  {0, 2, true}};
  options.trace = true;
  Plan plan = plan_by(profile, kOffload);
  plan.limits.offload_window = Bytes(kSize);
  plan.limits.prefetch_window = Bytes(2 * kSize);
  bool prefetched = false;
  for (const SimulatedTransfer& transfer : simulate(profile, plan, options).transfers) {
    prefetched = prefetched || (transfer.pass.micro_batch == 1 && transfer.reloaded >= 0 &&
                                transfer.reloaded_in.micro_batch == 0);
  }
  EXPECT_TRUE(prefetched);
}

TEST(Simulate, TakesWhatALaterPassHadFromTheProfile) {
  Profile profile = row_of_calls(2, 1);
  ChunkProfile& chunk = profile.chunks[0];
  chunk.timeline.back().untracked_bytes = 5;  // A persistent gradient.
  SimulateOptions options;
  options.schedule = accumulate(profile, 2);
  EXPECT_EQ(simulate(profile, plan_by(profile, ""), options).peak, Bytes(2 * kSize + 5));
  chunk.later_untracked_bytes.emplace(chunk.timeline.size(), 0);
  const auto unpack = std::find_if(chunk.timeline.begin(), chunk.timeline.end(),
                                   [](const auto& m) { return m.kind == MomentKind::kUnpack; });
  (*chunk.later_untracked_bytes)[static_cast<std::size_t>(unpack - chunk.timeline.begin())] = 7;
  EXPECT_EQ(simulate(profile, plan_by(profile, ""), options).peak, Bytes(2 * kSize + 5 + 7));
}

TEST(Simulate, KeepsALargeModelWithinItsBudgets) {
  const Profile profile = testing::llama_profile(16);
  const Plan plan = plan_by(profile, kOffload);
  for (const std::uint64_t gib : {3U, 6U, 12U, 18U}) {
    const Simulation simulation = within(profile, plan, gib << 30U);
    EXPECT_LE(simulation.peak, Bytes(gib << 30U));
    EXPECT_GT(simulation.peak.count(), (gib << 30U) / 100 * 98) << "all of it is used";
  }
}

TEST(Simulate, RefusesAPlanOfAnotherStructure) {
  const Profile profile = row_of_calls(3, 1);
  try {
    (void)simulate(profile, plan_by(row_of_calls(4, 1), ""));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("[simulate] the plan was made for another structure"));
  }
}

TEST(Simulate, RefusesAProfileWithoutTimes) {
  Profile profile = row_of_calls(3, 1);
  profile.chunks[0].timeline.clear();
  EXPECT_THROW((void)simulate(profile, plan_by(profile, "")), InvalidArgument);
}

}  // namespace
}  // namespace spillway
