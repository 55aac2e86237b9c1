// Sessions that execute plans with residency lists.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "torch/control/session_internals.hpp"
#include "torch/support/training.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::difference;
using testing::offload_everything;
using testing::single_step;
using testing::TinyModel;

/// The plan and the profile of a step that offloads everything it saves.
struct Recorded {
  Plan plan;
  Profile profile;
  Bytes largest;
  int offloaded = 0;  ///< Buffers.
};

template <typename Forward>
Recorded record(Forward&& forward) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 1, forward), 0);
  Recorded recorded{*session.plan(), *session.profile(), {}};
  for (const BufferProfile& buffer : recorded.profile.chunks[0].buffers) {
    if (buffer.fixed != FixedReason::kNone) continue;
    recorded.largest = std::max(recorded.largest, buffer.size);
    ++recorded.offloaded;
  }
  return recorded;
}

/// `pending` buffers may wait after each save; at each unpack, `ahead` more than were needed so far
/// have begun to be reloaded.
Plan with_lists(const Recorded& recorded, int pending, int ahead) {
  Plan plan = recorded.plan;
  ChunkPlan& chunk = plan.chunks[0];
  Residency list;
  list.pending.assign(chunk.sites.kind.size(), pending);
  list.own_reloads = recorded.offloaded;
  std::set<int> needed;
  chunk.residency = {};
  chunk.residency.unpack_order = recorded.profile.chunks[0].unpack_order;
  for (const int buffer : chunk.residency.unpack_order) {
    const Decision& decision = chunk.decisions[static_cast<std::size_t>(buffer)];
    if (decision.action.kind == ActionKind::kOffload) needed.insert(buffer);
    list.reloads.push_back(std::min(static_cast<int>(needed.size()) + ahead, list.own_reloads));
  }
  chunk.residency.add(std::move(list));
  return plan;
}

SessionOptions carrying_out(Plan plan) {
  SessionOptions options = offload_everything();
  options.rules = {};
  options.offload_window = 1_GiB;  // The lists decide, not the windows.
  options.prefetch_window = 1_GiB;
  options.plan = std::move(plan);
  return options;
}

TEST(ResidencyLists, BoundBuffersOnTheDeviceAndKeepTheBits) {
  const Recorded recorded = record(single_step);
  Bytes before;
  for (const int buffers : {0, 2, 8, 24}) {
    Session session(carrying_out(with_lists(recorded, buffers, buffers)));
    EXPECT_EQ(difference({}, session, 4, single_step), 0);
    const SessionReport report = session.report();
    // A buffer exists before another one is released, and backward may read two at once.
    const std::uint64_t most = static_cast<std::uint64_t>(buffers) + 2;
    EXPECT_LE(report.saved_peak_with, recorded.largest * most) << report;
    EXPECT_GT(report.saved_peak_with, before) << report;
    EXPECT_TRUE(report.fallbacks.empty()) << report;
    EXPECT_EQ(report.recorded_steps, 0U);
    before = report.saved_peak_with;
  }
}

TEST(ResidencyLists, CopyNothingThatTheyHold) {
  const Recorded recorded = record(single_step);
  Plan plan = with_lists(recorded, recorded.offloaded, recorded.offloaded);
  for (const Decision& each : plan.chunks[0].decisions) {
    if (each.action.kind != ActionKind::kOffload) continue;
    plan.chunks[0].residency.lists[0].held.push_back(each.buffer);
  }
  Session session(carrying_out(plan));
  EXPECT_EQ(difference({}, session, 4, single_step), 0);
  const SessionReport report = session.report();
  EXPECT_EQ(report.bytes_out, 0_B) << report;
  EXPECT_EQ(report.bytes_back, 0_B) << report;
  EXPECT_EQ(report.offloads_skipped.bytes, report.saved_peak_without) << report;
}

TEST(ResidencyLists, ApplyAtTheirSites) {
  const Recorded recorded = record(single_step);
  Plan plan = with_lists(recorded, recorded.offloaded, recorded.offloaded);
  Residency& list = plan.chunks[0].residency.lists[0];
  // Everything that was saved before the last site is released there at once.
  list.pending.back() = 0;
  Session all(carrying_out(plan));
  EXPECT_EQ(difference({}, all, 3, single_step), 0);
  EXPECT_EQ(all.report().bytes_out, all.report().saved_peak_without) << all.report();
  EXPECT_EQ(all.report().bytes_back, all.report().saved_peak_without) << all.report();
  EXPECT_EQ(all.report().saved_peak_with, all.report().saved_peak_without) << all.report();
  // Nothing may be prefetched.
  std::fill(list.reloads.begin(), list.reloads.end(), 0);
  Session late(carrying_out(plan));
  EXPECT_EQ(difference({}, late, 3, single_step), 0);
  EXPECT_GT(late.report().late_reloads, all.report().late_reloads + 5) << late.report();
}

TEST(ResidencyLists, HoldForSeveralPassesTogether) {
  const auto offload_window = [](TinyModel& model, Step* step, int i) {
    return testing::gpipe_step(model, step, i, 3);
  };
  const auto accumulated = [](TinyModel& model, Step*, int i) {
    return testing::accumulated_step(model, i, 3);
  };
  const Recorded recorded = record(offload_window);
  for (const int buffers : {0, 3, 12}) {
    const Plan plan = with_lists(recorded, buffers, buffers);
    const Bytes most = recorded.largest * (static_cast<std::uint64_t>(buffers) + 2);
    Session together(carrying_out(plan));
    EXPECT_EQ(difference({}, together, 4, offload_window), 0);
    EXPECT_LE(together.report().saved_peak_with, most) << together.report();
    EXPECT_TRUE(together.report().fallbacks.empty()) << together.report();
    Session in_turn(carrying_out(plan));
    EXPECT_EQ(difference({}, in_turn, 4, accumulated), 0);
    EXPECT_LE(in_turn.report().saved_peak_with, most) << in_turn.report();
    EXPECT_TRUE(in_turn.report().fallbacks.empty()) << in_turn.report();
  }
}

TEST(ResidencyLists, WorkWithRecomputation) {
  Session recording(testing::recompute_everything());
  EXPECT_EQ(difference({}, recording, 1, single_step), 0);
  Recorded recorded{*recording.plan(), *recording.profile(), {}};
  for (Decision& decision : recorded.plan.chunks[0].decisions) {
    const bool offload = decision.buffer % 3 == 0 && decision.fixed == FixedReason::kNone;
    if (!offload || decision.action.kind != ActionKind::kRecompute) continue;
    decision.action.kind = ActionKind::kOffload;
    ++recorded.offloaded;
  }
  Session session(carrying_out(with_lists(recorded, 2, 2)));
  EXPECT_EQ(difference({}, session, 4, single_step), 0);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
  EXPECT_GT(session.report().repeated_calls, 0U);
  EXPECT_GT(session.report().bytes_back, 0_B);
}

TEST(ResidencyLists, WorkForAGraphThatIsUsedTwice) {
  const auto twice = [](TinyModel& model, Step*, int i) {
    at::Tensor loss = model.loss(model.tokens(2, 32, i));
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    return loss;
  };
  const Recorded recorded = record(single_step);
  Session session(carrying_out(with_lists(recorded, 3, 4)));
  EXPECT_EQ(difference({}, session, 3, twice), 0);
}

/// Positions are the same whatever the sizes are.
TEST(ResidencyLists, GiveTheSameCommandsForOtherSizes) {
  const auto tokens = [](int length) {
    return [length](TinyModel& model, Step*, int i) {
      at::Tensor loss = model.loss(model.tokens(2, length, i));
      loss.backward();
      return loss;
    };
  };
  const Recorded recorded = record(tokens(32));
  Session session(carrying_out(with_lists(recorded, 3, 4)));
  EXPECT_EQ(difference({}, session, 1, tokens(32)), 0);  // Verifies.
  CommandLog as_profiled;
  SessionInternals::log_commands(session, &as_profiled);
  EXPECT_EQ(difference({}, session, 1, tokens(32)), 0);
  const Bytes peak = session.report().saved_peak_with;
  EXPECT_FALSE(as_profiled.empty());
  for (const int length : {40, 48}) {
    CommandLog commands;
    SessionInternals::log_commands(session, &commands);
    EXPECT_EQ(difference({}, session, 1, tokens(length)), 0);
    EXPECT_EQ(commands, as_profiled) << length;
    EXPECT_GT(session.report().saved_peak_with, peak) << session.report();
  }
  SessionInternals::log_commands(session, nullptr);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
}

/// As a plan of the last schema has it in a session without a profile.
TEST(Cap, BoundsBytesWhereThereAreNoLists) {
  const Recorded recorded = record(single_step);
  Plan plan = recorded.plan;
  plan.limits.offload_window = plan.limits.prefetch_window = 1_GiB;
  plan.chunks[0].residency = {};
  Bytes before;
  for (const Bytes cap : {0_B, 64_KiB, 256_KiB, 512_KiB}) {
    plan.cap = cap;
    Session session(carrying_out(plan));
    EXPECT_EQ(difference({}, session, 4, single_step), 0);
    const SessionReport report = session.report();
    EXPECT_LE(report.saved_peak_with, cap + recorded.largest + recorded.largest) << report;
    EXPECT_GT(report.saved_peak_with, before) << report;
    EXPECT_TRUE(report.fallbacks.empty()) << report;
    before = report.saved_peak_with;
  }
}

/// The lists alone would leave everything on the device.
TEST(Cap, BoundsPassesThatAreLargerThanProfiled) {
  const Recorded recorded = record(single_step);
  Plan plan = with_lists(recorded, recorded.offloaded, recorded.offloaded);
  for (const Decision& each : plan.chunks[0].decisions) {
    if (each.action.kind != ActionKind::kOffload) continue;
    plan.chunks[0].residency.lists[0].held.push_back(each.buffer);
  }
  plan.cap = 1_GiB;
  const auto larger = [](TinyModel& model, Step*, int i) {
    at::Tensor loss = model.loss(model.tokens(2, 48, i));
    loss.backward();
    return loss;
  };
  Session roomy(carrying_out(plan));
  EXPECT_EQ(difference({}, roomy, 4, larger), 0);
  EXPECT_EQ(roomy.report().bytes_out, 0_B) << roomy.report();
  // As profiled it fits.
  plan.cap = 600_KiB;
  Session session(carrying_out(plan));
  EXPECT_EQ(difference({}, session, 2, single_step), 0);
  EXPECT_EQ(session.report().bytes_out, 0_B) << session.report();
  EXPECT_GT(session.report().saved_peak_with, 600_KiB) << session.report();
  EXPECT_EQ(difference({}, session, 2, larger), 0);
  const SessionReport report = session.report();
  EXPECT_GT(report.bytes_back, 0_B) << report;
  EXPECT_LE(report.saved_peak_with, 600_KiB + recorded.largest * 3) << report;
  EXPECT_TRUE(report.fallbacks.empty()) << report;
}

}  // namespace
}  // namespace spillway
