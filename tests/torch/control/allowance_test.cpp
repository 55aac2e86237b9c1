// Sessions that execute plans with allowances.
#include <algorithm>

#include <gtest/gtest.h>

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
};

template <typename Forward>
Recorded record(Forward&& forward) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 1, forward), 0);
  Recorded recorded{*session.plan(), *session.profile(), {}};
  for (const BufferProfile& buffer : recorded.profile.chunks[0].buffers) {
    if (buffer.fixed == FixedReason::kNone) {
      recorded.largest = std::max(recorded.largest, buffer.size);
    }
  }
  return recorded;
}

Plan with_allowances(Recorded recorded, Bytes forward, Bytes backward) {
  ChunkPlan& chunk = recorded.plan.chunks[0];
  chunk.forward_allowance.assign(chunk.sites.kind.size(), forward);
  chunk.backward_allowance.assign(recorded.profile.chunks[0].unpack_order.size(), backward);
  return std::move(recorded.plan);
}

SessionOptions carrying_out(Plan plan) {
  SessionOptions options = offload_everything();
  options.rules = {};
  options.offload_window = 1_GiB;  // The allowances decide, not the windows.
  options.prefetch_window = 1_GiB;
  options.plan = std::move(plan);
  return options;
}

TEST(Allowances, BoundBytesOnTheDeviceAndKeepTheBits) {
  const Recorded recorded = record(single_step);
  Bytes before;
  for (const Bytes allowed : {0_B, 64_KiB, 256_KiB, 512_KiB}) {
    Session session(carrying_out(with_allowances(recorded, allowed, allowed)));
    EXPECT_EQ(difference({}, session, 4, single_step), 0);
    const SessionReport report = session.report();
    // A buffer exists before room is made for it, and backward may read two at once.
    EXPECT_LE(report.saved_peak_with, allowed + recorded.largest + recorded.largest) << report;
    EXPECT_GT(report.saved_peak_with, before) << report;
    EXPECT_TRUE(report.fallbacks.empty()) << report;
    EXPECT_EQ(report.recorded_steps, 0U);
    before = report.saved_peak_with;
  }
}

TEST(Allowances, AsLargeAsEverythingOffloadNothing) {
  const Recorded recorded = record(single_step);
  Session session(carrying_out(with_allowances(recorded, 1_GiB, 1_GiB)));
  EXPECT_EQ(difference({}, session, 4, single_step), 0);
  const SessionReport report = session.report();
  EXPECT_EQ(report.bytes_out, 0_B) << report;
  EXPECT_EQ(report.bytes_back, 0_B) << report;
  EXPECT_EQ(report.offloads_skipped.bytes, report.saved_peak_without) << report;
}

TEST(Allowances, WorkWithALimitOnPendingReleases) {
  const Recorded recorded = record(single_step);
  Plan plan = with_allowances(recorded, 1_GiB, 1_GiB);
  plan.max_pending_release = 0_B;
  plan.max_prefetch = 0_B;
  Session session(carrying_out(plan));
  EXPECT_EQ(difference({}, session, 4, single_step), 0);
  const SessionReport report = session.report();
  EXPECT_EQ(report.bytes_out, report.saved_peak_without) << report;
  EXPECT_LE(report.saved_peak_with, recorded.largest + recorded.largest) << report;
  EXPECT_TRUE(report.fallbacks.empty()) << report;
}

TEST(Allowances, ApplyAtTheirSites) {
  const Recorded recorded = record(single_step);
  Plan plan = with_allowances(recorded, 1_GiB, 1_GiB);
  // Everything that was saved before the last site is released there at once.
  plan.chunks[0].forward_allowance.back() = 0_B;
  Session all(carrying_out(plan));
  EXPECT_EQ(difference({}, all, 3, single_step), 0);
  EXPECT_EQ(all.report().bytes_out, all.report().saved_peak_without) << all.report();
  EXPECT_EQ(all.report().saved_peak_with, all.report().saved_peak_without) << all.report();
  // Nothing may be prefetched before the second-to-last unpack.
  plan.chunks[0].backward_allowance.assign(plan.chunks[0].backward_allowance.size(), 0_B);
  Session late(carrying_out(plan));
  EXPECT_EQ(difference({}, late, 3, single_step), 0);
  EXPECT_GT(late.report().late_reloads, all.report().late_reloads + 5) << late.report();
}

TEST(Allowances, HoldForSeveralPassesTogether) {
  const auto offload_window = [](TinyModel& model, Step* step, int i) {
    return testing::gpipe_step(model, step, i, 3);
  };
  const auto accumulated = [](TinyModel& model, Step*, int i) {
    return testing::accumulated_step(model, i, 3);
  };
  const Recorded recorded = record(offload_window);
  for (const Bytes allowed : {0_B, 96_KiB, 384_KiB}) {
    const Plan plan = with_allowances(recorded, allowed, allowed);
    Session together(carrying_out(plan));
    EXPECT_EQ(difference({}, together, 4, offload_window), 0);
    EXPECT_LE(together.report().saved_peak_with, allowed + recorded.largest) << together.report();
    EXPECT_TRUE(together.report().fallbacks.empty()) << together.report();
    Session in_turn(carrying_out(plan));
    EXPECT_EQ(difference({}, in_turn, 4, accumulated), 0);
    EXPECT_LE(in_turn.report().saved_peak_with, allowed + recorded.largest) << in_turn.report();
    EXPECT_TRUE(in_turn.report().fallbacks.empty()) << in_turn.report();
  }
}

TEST(Allowances, WorkWithRecomputation) {
  Session recording(testing::recompute_everything());
  EXPECT_EQ(difference({}, recording, 1, single_step), 0);
  Plan plan = *recording.plan();
  ChunkPlan& chunk = plan.chunks[0];
  for (Decision& decision : chunk.decisions) {
    const bool offload = decision.buffer % 3 == 0 && decision.fixed == FixedReason::kNone;
    if (offload && decision.action.kind == ActionKind::kRecompute) {
      decision.action.kind = ActionKind::kOffload;
    }
  }
  chunk.forward_allowance.assign(chunk.sites.kind.size(), 64_KiB);
  chunk.backward_allowance.assign(recording.profile()->chunks[0].unpack_order.size(), 96_KiB);
  Session session(carrying_out(plan));
  EXPECT_EQ(difference({}, session, 4, single_step), 0);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
  EXPECT_GT(session.report().repeated_calls, 0U);
  EXPECT_GT(session.report().bytes_back, 0_B);
}

TEST(Allowances, WorkForAGraphThatIsUsedTwice) {
  const auto twice = [](TinyModel& model, Step*, int i) {
    at::Tensor loss = model.loss(model.tokens(2, 32, i));
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    return loss;
  };
  const Recorded recorded = record(single_step);
  Session session(carrying_out(with_allowances(recorded, 64_KiB, 96_KiB)));
  EXPECT_EQ(difference({}, session, 3, twice), 0);
}

}  // namespace
}  // namespace spillway
