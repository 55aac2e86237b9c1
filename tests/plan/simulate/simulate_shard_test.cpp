#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/graph_builder.hpp"
#include "plan/support/plan_queries.hpp"
#include "plan/support/synthetic_timeline.hpp"
#include "spillway/plan/shard.hpp"
#include "spillway/plan/simulate.hpp"

namespace spillway {
namespace {

using testing::GraphBuilder;
using testing::plan_by;

constexpr const char* kKeep = "[[rule]]\naction = \"keep\"\nshard = true\n";
constexpr const char* kOffloadSharded = "[[rule]]\naction = \"offload\"\nshard = true\n";
constexpr std::uint64_t kShardedSize = 10'240'000;
constexpr std::uint64_t kPart = kShardedSize / 4;
constexpr std::int64_t kOneMillisecond = 1'000'000;

/// Ten calls of a millisecond that each save a buffer; the link takes a millisecond for one of
/// them, each way.
Profile ten_calls() {
  GraphBuilder graph;
  for (int i = 0; i < 10; ++i) {
    graph.save(graph.call({.makes = {kShardedSize}, .ns = kOneMillisecond}), "saved");
  }
  Profile profile = graph.profile();
  const double speed = static_cast<double>(kShardedSize) * 1e3;
  profile.link = {speed, speed, speed, speed};
  testing::add_timelines(profile);
  for (Moment& moment : profile.chunks[0].timeline) moment.untracked_bytes = 0;
  return profile;
}

/// Four ranks; the parts of the other three take `milliseconds`.
SimulateOptions four_ranks(double milliseconds) {
  SimulateOptions options;
  options.windows.offload_window = Bytes(0);
  options.windows.prefetch_window = Bytes(kShardedSize);
  options.shard.ranks = 4;
  options.shard.bytes_per_second = 3.0 * kPart / milliseconds * 1e3;
  return options;
}

TEST(PartOf, IsRoundedUp) {
  EXPECT_EQ(part_of(4096, 4), 1024U);
  EXPECT_EQ(part_of(4097, 4), 1536U);
  EXPECT_EQ(part_of(1, 3), 512U);
  EXPECT_EQ(part_of(1537, 3), 1024U);
}

TEST(SimulateShard, HoldsAPartOfEachBuffer) {
  const Profile profile = ten_calls();
  const Simulation simulation = simulate(profile, plan_by(profile, kKeep), four_ranks(0.5));
  EXPECT_EQ(simulation.peak, Bytes(9 * kPart + 2 * kShardedSize)) << "one is used, one comes";
  EXPECT_EQ(simulation.bytes_gathered, Bytes(10 * kShardedSize));
  EXPECT_EQ(simulation.bytes_out, Bytes(0));
}

TEST(SimulateShard, IsNothingForOneRank) {
  const Profile profile = ten_calls();
  const Simulation simulation = simulate(profile, plan_by(profile, kKeep));
  EXPECT_EQ(simulation.peak, Bytes(10 * kShardedSize));
  EXPECT_EQ(simulation.bytes_gathered, Bytes(0));
}

TEST(SimulateShard, HidesGathersThatKeepUp) {
  const Profile profile = ten_calls();
  const Simulation simulation = simulate(profile, plan_by(profile, kKeep), four_ranks(0.5));
  // The last buffer is needed as soon as backward begins.
  EXPECT_LE(simulation.waits.gather_ns, kOneMillisecond / 2);
  EXPECT_EQ(simulation.step_ns, 30 * kOneMillisecond + simulation.waits.gather_ns);
}

TEST(SimulateShard, WaitsForGathersThatDoNot) {
  const Profile profile = ten_calls();
  const Simulation simulation = simulate(profile, plan_by(profile, kKeep), four_ranks(5));
  EXPECT_GT(simulation.waits.gather_ns, 20 * kOneMillisecond);
  EXPECT_EQ(simulation.step_ns, 30 * kOneMillisecond + simulation.waits.gather_ns);
}

TEST(SimulateShard, OffloadsParts) {
  const Profile profile = ten_calls();
  const Simulation simulation =
      simulate(profile, plan_by(profile, kOffloadSharded), four_ranks(0.5));
  EXPECT_EQ(simulation.bytes_out, Bytes(10 * kPart));
  EXPECT_EQ(simulation.bytes_back, Bytes(10 * kPart));
  EXPECT_EQ(simulation.host_peak, Bytes(10 * kPart));
  EXPECT_LE(simulation.peak, Bytes(2 * kShardedSize + 2 * kPart));
}

TEST(SimulateShard, RunsPassesInFlight) {
  const Profile profile = ten_calls();
  SimulateOptions options = four_ranks(0.5);
  for (const bool backward : {false, true}) {
    for (int micro = 0; micro < 3; ++micro) options.schedule.push_back({0, micro, backward});
  }
  const Simulation simulation = simulate(profile, plan_by(profile, kKeep), options);
  EXPECT_EQ(simulation.peak, Bytes(29 * kPart + 2 * kShardedSize));
  EXPECT_EQ(simulation.bytes_gathered, Bytes(30 * kShardedSize));
}

/// A layer's input, then `layers` layers that are recomputed from theirs.
constexpr const char* kPartition = "[paddle]\nrecompute_interval = 1\nrecompute_partition = true\n";

TEST(GatherOrder, BeginsTheNextGatherWhereItMakesNoNewPeak) {
  const Profile profile = testing::llama_profile(4);
  const Plan plan = plan_by(profile, kPartition);
  const ChunkPlan& chunk = plan.chunks[0];
  const GatherOrder order = gather_order(chunk);
  ASSERT_EQ(order.due.size(), chunk.decisions.size() + chunk.anchors.size());
  const auto is_shard = [&](int id) {
    const auto at = static_cast<std::size_t>(id);
    const std::size_t buffers = chunk.decisions.size();
    return at < buffers ? chunk.decisions[at].action.shard
                        : chunk.anchors[at - buffers].action.shard;
  };
  // Between two gathers something that is recomputed asks for the second one; what is recomputed
  // from there on, with the whole and a part, is not more than the largest buffer before.
  int due = 0;
  int shards = 0;
  std::uint64_t largest = 0;
  std::uint64_t to_come = 0;
  std::set<int> seen;
  for (const int id : chunk.need_order) {
    if (!seen.insert(id).second) continue;
    const auto at = static_cast<std::size_t>(id);
    if (is_shard(id)) {
      if (shards++ > 0) {
        EXPECT_GE(due, order.position[at]) << "gathered too early";
        EXPECT_LE(to_come + 2 * chunk.decisions[at].bytes.count(), largest);
      }
      largest = to_come = 0;
    } else if (at < chunk.decisions.size() &&
               chunk.decisions[at].action.kind == ActionKind::kRecompute) {
      const std::uint64_t bytes = chunk.decisions[at].bytes.count();
      largest = std::max(largest, bytes);
      if (order.due[at] > 0) to_come = 0;
      due = std::max(due, order.due[at]);
      to_come += bytes;
    }
  }
  EXPECT_EQ(shards, 4);
  EXPECT_EQ(due, static_cast<int>(order.position.size()) + 1)
      << "the last asks for the next pass's";
}

TEST(SimulateShard, TakesNoMoreMemoryThanWithoutPartsWhereLayersAreRecomputed) {
  const Profile profile = testing::llama_profile(6);
  SimulateOptions options;
  options.shard = {.ranks = 4, .bytes_per_second = 100e9};
  options.windows.prefetch_window = options.windows.offload_window = Bytes(0);
  const Simulation whole =
      simulate(profile, plan_by(profile, "[paddle]\nrecompute_interval = 1\n"), options);
  const Simulation parts = simulate(profile, plan_by(profile, kPartition), options);
  EXPECT_LT(parts.peak, whole.peak);
  EXPECT_LT(parts.step_ns, whole.step_ns + whole.step_ns / 100) << "gathers are hidden";
  EXPECT_GT(parts.bytes_gathered, Bytes(0));
}

TEST(SetWindows, FollowFromSizesAloneWhereBuffersAreSharded) {
  const Profile profile = testing::llama_profile(4);
  Profile slower = profile;
  for (double* speed : {&slower.link.out, &slower.link.back, &slower.link.out_with_back,
                        &slower.link.back_with_out}) {
    *speed /= 7;
  }
  const std::string rules = std::string(kPartition) + "recompute_offload = true\n";
  const ShardModel shard{.ranks = 4, .bytes_per_second = 1e9};
  Plan plan = plan_by(profile, rules);
  Plan other = plan;
  set_windows(profile, plan, {}, shard);
  set_windows(slower, other, {}, shard);
  EXPECT_EQ(plan, other);
  ASSERT_TRUE(plan.limits.offload_window && plan.limits.prefetch_window);
  EXPECT_EQ(*plan.limits.prefetch_window, Bytes(0)) << "gather_order() decides";
  EXPECT_EQ(*plan.limits.offload_window, Bytes(part_of(8192 * 4096 * 2, 4)));
}

TEST(SimulateShard, ShowsGathersInTraces) {
  const Profile profile = ten_calls();
  SimulateOptions options = four_ranks(0.5);
  options.trace = true;
  const Plan plan = plan_by(profile, kKeep);
  const Simulation simulation = simulate(profile, plan, options);
  std::int64_t end = 0;
  int gathers = 0;
  for (const SimulatedSpan& span : simulation.spans) {
    if (span.work != SimulatedWork::kGather) continue;
    EXPECT_EQ(span.stream, SimulatedStream::kGather);
    EXPECT_GE(span.begin_ns, end) << "one at a time";
    EXPECT_EQ(span.end_ns - span.begin_ns, kOneMillisecond / 2);
    end = span.end_ns;
    ++gathers;
  }
  EXPECT_EQ(gathers, 10);
}

}  // namespace
}  // namespace spillway
