// Sessions that know the order of a pipeline rank's passes.
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/simulate/simulator.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/simulate.hpp"
#include "spillway/torch/host_memory.hpp"
#include "support/error_text.hpp"
#include "support/random_cases.hpp"
#include "torch/control/session_internals.hpp"
#include "torch/support/pipeline_stage.hpp"
#include "torch/support/training.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::count_different;
using testing::error_text;
using ::testing::HasSubstr;
using testing::offload_everything;
using testing::PipelineStage;
using testing::StageOptions;
using testing::with_rules;

constexpr auto kOneForwardOneBackward = ScheduleKind::kOneForwardOneBackward;

/// A rank of a pipeline.
struct Case {
  std::string name;
  ScheduleKind kind{};
  PipelineRank rank;
};

std::vector<Case> all_ranks() {
  const std::vector<Case> shapes = {
      {"PP2", kOneForwardOneBackward, {0, 2, 1, 4}},
      {"PP4", kOneForwardOneBackward, {0, 4, 1, 6}},
      {"PP2Chunks2", kOneForwardOneBackward, {0, 2, 2, 4}},
      {"PP3Micro5", kOneForwardOneBackward, {0, 3, 1, 5}},
      {"PP3Chunks2Micro5", kOneForwardOneBackward, {0, 3, 2, 5}},
      {"GPipe2", ScheduleKind::kGpipe, {0, 2, 1, 3}},
  };
  std::vector<Case> cases;
  for (Case each : shapes) {
    for (; each.rank.stage < each.rank.stages; ++each.rank.stage) cases.push_back(each);
  }
  return cases;
}

StageOptions stage_of(const Case& each, double dropout = 0.1) {
  StageOptions options;
  options.rank = each.rank;
  options.schedule = each.kind;
  options.dropout = dropout;
  return options;
}

/// Offloads what layer norms made, recomputes the rest.
constexpr const char* kBoth =
    "[[rule]]\nproducer = \"aten::native_layer_norm\"\naction = \"offload\"\n"
    "[[rule]]\naction = \"recompute\"\n";

const std::vector<std::string> kRules = {"[[rule]]\naction = \"keep\"\n",
                                         "[[rule]]\naction = \"offload\"\n",
                                         "[[rule]]\naction = \"recompute\"\n", kBoth};

SessionOptions with_budget(Budget budget) {
  SessionOptions options = with_rules("");
  options.budget = budget;
  options.plan_in_background = false;
  options.planning_time = std::chrono::milliseconds(300);
  return options;
}

using ActionsOf = std::function<std::vector<PipelineAction>(const PipelineStage&, int)>;

std::vector<PipelineAction> as_announced(const PipelineStage& stage, int /*step*/) {
  return stage.actions();
}

/// Losses and gradients of `steps` steps. The session gets the schedule `announced`; `done` is the
/// one that runs.
std::vector<at::Tensor> train(const StageOptions& options, Session* session, int steps,
                              const ActionsOf& announced = as_announced,
                              const ActionsOf& done = {}) {
  PipelineStage stage(options);
  if (session != nullptr) session->register_model(stage);
  std::vector<at::Tensor> values;
  for (int i = 0; i < steps; ++i) {
    stage.zero_gradients();
    const std::vector<PipelineAction> actions = done ? done(stage, i) : announced(stage, i);
    std::vector<at::Tensor> found;
    if (session != nullptr) {
      Step step = session->step(passes_of(announced(stage, i)));
      found = stage.run(&step, actions, i);
    } else {
      found = stage.run(nullptr, actions, i);
    }
    for (at::Tensor& gradient : stage.gradients()) found.push_back(std::move(gradient));
    values.insert(values.end(), found.begin(), found.end());
  }
  return values;
}

int difference_of(const StageOptions& options, Session& session, int steps,
                  const ActionsOf& announced = as_announced, const ActionsOf& done = {}) {
  const testing::Deterministic deterministic;
  const std::vector<at::Tensor> without = train(options, nullptr, steps, announced, done);
  EXPECT_FALSE(without.empty());
  return count_different(without, train(options, &session, steps, announced, done));
}

class ScheduledSession : public ::testing::TestWithParam<Case> {};

TEST_P(ScheduledSession, GivesTheSameBits) {
  for (const std::string& rules : kRules) {
    Session session(with_rules(rules));
    EXPECT_EQ(difference_of(stage_of(GetParam()), session, 4), 0) << rules;
    const SessionReport report = session.report();
    EXPECT_TRUE(report.fallbacks.empty()) << rules << report;
    EXPECT_TRUE(report.demoted.empty()) << rules << report;
    EXPECT_EQ(report.recorded_steps, 1U) << report;
    const bool recomputes = rules.find("recompute") != std::string::npos;
    EXPECT_EQ(report.repeated_calls > 0, recomputes) << rules << report;
  }
}

/// Predicted peaks of plans compared with measured ones, to the byte. Gradients allocated by the
/// first pass of a chunk exist in later ones.
TEST_P(ScheduledSession, HasThePredictedPeak) {
  PipelineStage stage(stage_of(GetParam(), /*dropout=*/0));
  const std::vector<PipelineAction> actions = stage.actions();
  const auto peak_of_step = [&](Session& session) {
    stage.zero_gradients();
    const auto before = static_cast<std::int64_t>(host_memory().count());
    {
      Step step = session.step(passes_of(actions));
      (void)stage.run(&step, actions, 1, /*keep=*/false);
    }
    return static_cast<std::int64_t>(session.report().device_peak.count()) - before;
  };
  Session recorder(offload_everything());
  recorder.register_model(stage);
  (void)peak_of_step(recorder);
  const Profile profile = *recorder.profile();
  ASSERT_EQ(profile.chunks.size(), static_cast<std::size_t>(GetParam().rank.chunks));
  SimulateOptions options;
  options.schedule = passes_of(actions);
  options.windows.offload_window = offload_everything().offload_window;
  options.windows.prefetch_window = offload_everything().prefetch_window;
  const Simulator simulator(profile, options.schedule);
  const auto compare = [&](const Plan& plan, const std::string& what) {
    SessionOptions given = offload_everything();
    given.rules = {};
    given.plan = plan;
    Session session(std::move(given));
    session.register_model(stage);
    std::int64_t measured = 0;
    CommandLog commands;
    for (int i = 0; i < 2; ++i) {  // The first step verifies.
      if (i == 1) SessionInternals::log_commands(session, &commands);
      measured = peak_of_step(session);
    }
    SessionInternals::log_commands(session, nullptr);
    EXPECT_EQ(commands, simulator.commands(plan, options.windows)) << what;
    const Simulation simulation = simulate(profile, plan, options);
    EXPECT_EQ(static_cast<std::int64_t>(simulation.peak.count()), measured) << what;
    EXPECT_EQ(simulation.bytes_out, session.report().bytes_out) << what;
    EXPECT_EQ(simulation.bytes_back, session.report().bytes_back) << what;
    EXPECT_TRUE(session.report().fallbacks.empty()) << what << session.report();
    return simulation.peak;
  };
  for (const std::string& rules : kRules) {
    Plan plan = make_plan(profile, parse_rules(rules, "r.toml"));
    const Bytes most = compare(plan, rules);
    set_windows(profile, plan, options.schedule, {}, options.windows);
    (void)compare(plan, rules + " with lists of windows");
    ByteTargets targets = simulator.set_residency(Bytes(most.count() * 3 / 4), plan);
    (void)compare(plan, rules + " with lists of a budget");
    targets.pending_release = targets.prefetch = 24 * 1024;
    (void)simulator.set_residency(targets, plan);
    (void)compare(plan, rules + " with a small limit on pending releases");
  }
}

TEST_P(ScheduledSession, StaysWithinABudgetOrReportsThatItCannot) {
  for (const double share :
       testing::some(std::vector{0.9, 0.6}, GetParam().rank.stage == 0 ? 2 : 1)) {
    Session session(with_budget(Budget::share(share)));
    try {
      EXPECT_EQ(difference_of(stage_of(GetParam()), session, 8), 0);
    } catch (const PlanInfeasible& error) {
      EXPECT_THAT(error.what(), HasSubstr("the smallest peak is "));
      EXPECT_LT(share, 0.9) << error.what();
      continue;
    }
    SessionReport report = session.report();
    // A timed step may replan, and the step that verifies a plan is not measured.
    for (int more = 0; more < 8 && report.budget->measured_peak == 0_B; ++more) {
      EXPECT_EQ(difference_of(stage_of(GetParam()), session, 2), 0);
      report = session.report();
    }
    EXPECT_GE(report.budget->plans, 1U) << report;
    EXPECT_GT(report.budget->measured_peak, 0_B) << report;
    EXPECT_LE(report.budget->measured_peak, report.budget->budget) << report;
    EXPECT_TRUE(report.fallbacks.empty()) << report;
  }
}

INSTANTIATE_TEST_SUITE_P(AllRanks, ScheduledSession, ::testing::ValuesIn(all_ranks()),
                         [](const auto& each) {
                           return each.param.name + "Stage" + std::to_string(each.param.rank.stage);
                         });

const Case kFirstOfFour{"", kOneForwardOneBackward, {0, 4, 1, 6}};
const Case kThirdOfFour{"", kOneForwardOneBackward, {2, 4, 1, 6}};
const Case kLastOfFour{"", kOneForwardOneBackward, {3, 4, 1, 6}};

TEST(SessionSchedule, PrefetchesFromTheFirstStepOn) {
  for (const Case& each : {kFirstOfFour, kThirdOfFour}) {
    SessionOptions options = offload_everything();
    options.offload_window = 1_KiB;  // Nearly everything is released when its backward begins.
    Session session(std::move(options));
    EXPECT_EQ(difference_of(stage_of(each), session, 2), 0);
    const SessionReport report = session.report();
    // The first buffer of the step's first backward cannot be prefetched.
    EXPECT_LE(report.late_reloads, 1U) << report;
    EXPECT_GT(report.bytes_back, 200_KiB) << report;
  }
}

TEST(SessionSchedule, SkipsOffloadsThatTheLastStageReadsAtOnce) {
  Session session(offload_everything());
  EXPECT_EQ(difference_of(stage_of(kLastOfFour), session, 4), 0);
  const SessionReport report = session.report();
  EXPECT_GT(report.offloads_skipped.buffers, 0U) << report;
  Session first(offload_everything());
  EXPECT_EQ(difference_of(stage_of(kFirstOfFour), first, 4), 0);
  EXPECT_GT(first.report().bytes_out, report.bytes_out * 2) << first.report();
}

TEST(SessionSchedule, GivesTheSameBitsWhenPassesRunInAnotherOrder) {
  const auto gpipe = [](const PipelineStage& stage, int step) {
    return step == 2 ? make_schedule(ScheduleKind::kGpipe, kFirstOfFour.rank) : stage.actions();
  };
  for (const bool budget : {false, true}) {
    Session session(budget ? with_budget(Budget::share(0.9)) : offload_everything());
    EXPECT_EQ(difference_of(stage_of(kFirstOfFour), session, 6, as_announced, gpipe), 0);
    EXPECT_THAT(session.report().fallbacks,
                ::testing::ElementsAre(
                    ::testing::Pair("the passes did not run in the order of the schedule", 1U)));
  }
}

TEST(SessionSchedule, CountsAStepThatEndsEarly) {
  const auto half = [](const PipelineStage& stage, int step) {
    return stage.actions(step == 2 ? 3 : 0);
  };
  Session session(offload_everything());
  EXPECT_EQ(difference_of(stage_of(kLastOfFour), session, 4, as_announced, half), 0);
  EXPECT_THAT(session.report().fallbacks,
              ::testing::ElementsAre(
                  ::testing::Pair("the step ended before its schedule was complete", 1U)));
}

TEST(SessionSchedule, MayHaveAnotherNumberOfMicroBatchesInEveryStep) {
  const auto changing = [](const PipelineStage& stage, int step) {
    return stage.actions(std::vector<int>{6, 2, 9, 1}[static_cast<std::size_t>(step) % 4]);
  };
  for (const Case& each : {kFirstOfFour, kThirdOfFour, kLastOfFour}) {
    for (const std::string& rules : {kRules[1], kRules[3]}) {
      Session session(with_rules(rules));
      EXPECT_EQ(difference_of(stage_of(each), session, 9, changing), 0);
      EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
    }
  }
}

TEST(SessionSchedule, PlansForEachOrderAndCachesThePlans) {
  const auto alternating = [](const PipelineStage& stage, int step) {
    return stage.actions(step % 3 == 2 ? 3 : 6);
  };
  Session session(with_budget(Budget::share(0.9)));
  EXPECT_EQ(difference_of(stage_of(kFirstOfFour), session, 6, alternating), 0);
  const std::uint64_t plans = session.report().budget->plans;
  EXPECT_GE(plans, 2U) << session.report();
  EXPECT_EQ(difference_of(stage_of(kFirstOfFour), session, 24, alternating), 0);
  const SessionReport report = session.report();
  // The plans that timed and over-budget steps may require, and not one for each change.
  EXPECT_LE(report.budget->plans, plans + 6) << report;
  EXPECT_EQ(report.recorded_steps, 1U) << report;
  EXPECT_EQ(report.budget->unplanned_steps, 0U) << report;
  EXPECT_TRUE(report.fallbacks.empty()) << report;
}

TEST(SessionSchedule, PlansForOtherOrdersInTheBackground) {
  const auto changing = [](const PipelineStage& stage, int step) {
    return stage.actions(step % 2 == 0 ? 6 : 3);
  };
  SessionOptions options = with_budget(Budget::share(0.9));
  options.plan_in_background = true;
  Session session(std::move(options));
  EXPECT_EQ(difference_of(stage_of(kFirstOfFour), session, 30, changing), 0);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
}

TEST(SessionSchedule, ThrowsOnceForEachOrderThatNoPlanFitsIfItIsStrict) {
  const auto changing = [](const PipelineStage& stage, int step) {
    return stage.actions(step % 3 == 2 ? 6 : 1);
  };
  // Enough for one micro-batch, but not for four passes in flight.
  for (const bool strict : {true, false}) {
    SessionOptions options = with_budget(Budget(150_KiB));
    options.rules = parse_rules("[[rule]]\naction = \"keep\"\n", "keep.toml");
    options.strict = strict;
    Session session(std::move(options));
    PipelineStage stage(stage_of(kFirstOfFour));
    session.register_model(stage);
    std::vector<int> refused;
    for (int i = 0; i < 9; ++i) {
      stage.zero_gradients();
      const std::vector<PipelineAction> actions = changing(stage, i);
      try {
        Step step = session.step(passes_of(actions));
        (void)stage.run(&step, actions, i);
      } catch (const PlanInfeasible&) {
        refused.push_back(i);
      }
    }
    const SessionReport report = session.report();
    EXPECT_EQ(refused, strict ? std::vector<int>{2} : std::vector<int>()) << report;
    const auto fallback = report.fallbacks.find(
        "no plan fits the budget: the one with the smallest peak is executed");
    EXPECT_EQ(fallback == report.fallbacks.end(), strict) << report;
    if (!strict) {
      EXPECT_EQ(fallback->second, 1U) << report;
      EXPECT_GT(report.budget->predicted_peak, report.budget->budget) << report;
    }
  }
}

TEST(SessionSchedule, IsAnErrorIfInvalid) {
  Session session(offload_everything());
  EXPECT_THAT(error_text<InvalidArgument>([&] {
                (void)session.step({{0, 0, true}});
              }),
              HasSubstr("the backward of chunk 0 on micro-batch 0 comes before its forward"));
  EXPECT_THAT(error_text<InvalidArgument>([&] {
                (void)session.step({{0, 0, false}});
              }),
              HasSubstr("has no backward"));
  const Step step = session.step();  // None had begun.
}

}  // namespace
}  // namespace spillway
