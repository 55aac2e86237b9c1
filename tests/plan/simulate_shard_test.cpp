#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_builder.hpp"
#include "plan_queries.hpp"
#include "spillway/plan/shard.hpp"
#include "spillway/plan/simulate.hpp"
#include "synthetic_timeline.hpp"

namespace spillway {
namespace {

using testing::GraphBuilder;
using testing::plan_by;

constexpr const char* kKeep = "[[rule]]\naction = \"keep\"\nshard = true\n";
constexpr const char* kOffload = "[[rule]]\naction = \"offload\"\nshard = true\n";
constexpr std::uint64_t kSize = 10'240'000;
constexpr std::uint64_t kPart = kSize / 4;
constexpr std::int64_t kMillisecond = 1'000'000;

/// Ten calls of a millisecond that each save a buffer; the link takes a millisecond for one of them,
/// each way.
Profile ten_calls() {
  GraphBuilder graph;
  for (int i = 0; i < 10; ++i) {
    graph.save(graph.call({.makes = {kSize}, .ns = kMillisecond}), "saved");
  }
  Profile profile = graph.profile();
  const double speed = static_cast<double>(kSize) * 1e3;
  profile.link = {speed, speed, speed, speed};
  testing::add_timelines(profile);
  for (Moment& moment : profile.chunks[0].timeline) moment.other_bytes = 0;
  return profile;
}

/// Four ranks; the parts of the other three take `milliseconds`.
SimulateOptions four_ranks(double milliseconds) {
  SimulateOptions options;
  options.windows.in_flight = Bytes(0);
  options.windows.ahead = Bytes(kSize);
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
  EXPECT_EQ(simulation.peak, Bytes(9 * kPart + 2 * kSize)) << "one is used, one comes";
  EXPECT_EQ(simulation.bytes_gathered, Bytes(10 * kSize));
  EXPECT_EQ(simulation.bytes_out, Bytes(0));
}

TEST(SimulateShard, IsNothingForOneRank) {
  const Profile profile = ten_calls();
  const Simulation simulation = simulate(profile, plan_by(profile, kKeep));
  EXPECT_EQ(simulation.peak, Bytes(10 * kSize));
  EXPECT_EQ(simulation.bytes_gathered, Bytes(0));
}

TEST(SimulateShard, HidesGathersThatKeepUp) {
  const Profile profile = ten_calls();
  const Simulation simulation = simulate(profile, plan_by(profile, kKeep), four_ranks(0.5));
  // The last buffer is wanted as soon as backward begins.
  EXPECT_LE(simulation.waits.gather_ns, kMillisecond / 2);
  EXPECT_EQ(simulation.step_ns, 30 * kMillisecond + simulation.waits.gather_ns);
}

TEST(SimulateShard, WaitsForGathersThatDoNot) {
  const Profile profile = ten_calls();
  const Simulation simulation = simulate(profile, plan_by(profile, kKeep), four_ranks(5));
  EXPECT_GT(simulation.waits.gather_ns, 20 * kMillisecond);
  EXPECT_EQ(simulation.step_ns, 30 * kMillisecond + simulation.waits.gather_ns);
}

TEST(SimulateShard, OffloadsParts) {
  const Profile profile = ten_calls();
  const Simulation simulation = simulate(profile, plan_by(profile, kOffload), four_ranks(0.5));
  EXPECT_EQ(simulation.bytes_out, Bytes(10 * kPart));
  EXPECT_EQ(simulation.bytes_back, Bytes(10 * kPart));
  EXPECT_EQ(simulation.host_peak, Bytes(10 * kPart));
  EXPECT_LE(simulation.peak, Bytes(2 * kSize + 2 * kPart));
}

TEST(SimulateShard, RunsPassesInFlight) {
  const Profile profile = ten_calls();
  SimulateOptions options = four_ranks(0.5);
  for (const bool backward : {false, true}) {
    for (int micro = 0; micro < 3; ++micro) options.schedule.push_back({0, micro, backward});
  }
  const Simulation simulation = simulate(profile, plan_by(profile, kKeep), options);
  EXPECT_EQ(simulation.peak, Bytes(29 * kPart + 2 * kSize));
  EXPECT_EQ(simulation.bytes_gathered, Bytes(30 * kSize));
}

}  // namespace
}  // namespace spillway
