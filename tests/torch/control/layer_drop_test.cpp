// Layers dropped at random: every step saves something else. Training continues, with the same
// bits.
#include <chrono>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "spillway/plan/planner.hpp"
#include "support/random_cases.hpp"
#include "torch/support/training.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::difference;
using ::testing::HasSubstr;
using testing::TinyModel;

constexpr int kLayers = 5;
constexpr const char* kNoPlanFits =
    "no plan fits the budget: the one with the smallest peak is executed";

SessionOptions planned_within(Budget budget) {
  SessionOptions options = testing::with_rules("");
  options.budget = budget;
  options.plan_in_background = false;
  options.planning_time = std::chrono::milliseconds(300);
  return options;
}

at::Tensor step_without(TinyModel& model, int i, const std::vector<bool>& dropped) {
  at::Tensor loss = model.loss(model.tokens(4, 64, i), dropped);
  loss.backward();
  return loss;
}

at::Tensor dropping_step(TinyModel& model, Step* /*step*/, int i) {
  std::mt19937 random(static_cast<std::uint32_t>(i));
  std::vector<bool> dropped;
  for (int layer = 0; layer < kLayers; ++layer) dropped.push_back(random() % 4 == 0);
  return step_without(model, i, dropped);
}

TEST(LayerDrop, NeverEndsATrainingWithinAShareOfItsMemory) {
  const int steps = testing::cases_of(60, 2);
  for (const bool background : {false, true}) {
    for (const bool replan : {false, true}) {
      SCOPED_TRACE(std::string(background ? "background " : "") + (replan ? "replan" : ""));
      SessionOptions options = planned_within(Budget::share(0.6));
      options.plan_in_background = background;
      options.replan = replan;
      Session session(std::move(options));
      EXPECT_EQ(difference({.layers = kLayers}, session, steps, dropping_step), 0);
      const SessionReport report = session.report();
      EXPECT_EQ(report.steps, static_cast<std::uint64_t>(steps));
      EXPECT_GT(report.recorded_steps, 1U);
      // In the background the planner may need longer than all of these steps.
      if (!background) {
        EXPECT_GT(report.fallbacks.at("the pass saved other tensors than profiled"), 0U) << report;
        EXPECT_GT(report.budget->steps.at(StepKind::kDiverged).steps, 5U) << report;
      }
    }
  }
}

TEST(LayerDrop, LeavesNothingOfADivergedStepInTheReserve) {
  Session session(planned_within(Budget::share(0.6)));
  TinyModel model({.layers = kLayers});
  session.register_model(model);
  const auto run = [&](int i, const std::vector<bool>& dropped) {
    model.zero_gradients();
    {
      const auto step = session.step();
      (void)step_without(model, i, dropped);
    }
    return session.report();
  };
  SessionReport before;
  for (int i = 0; i < 12; ++i) before = run(i, {true, true, true});
  ASSERT_GT(before.budget->measured_peak, 0_B) << before;
  const SessionReport diverged = run(12, {});
  ASSERT_EQ(diverged.last_step->kind, StepKind::kDiverged) << diverged;
  ASSERT_GT(diverged.last_step->peak, diverged.budget->budget) << diverged;
  EXPECT_EQ(diverged.budget->measured_peak, before.budget->measured_peak);
  // The next step records. The plan that is made of it reserves nothing.
  (void)run(13, {});
  (void)run(14, {});
  EXPECT_EQ(session.report().recorded_steps, 2U);
  for (const std::string& note : session.plan()->notes) {
    EXPECT_THAT(note, ::testing::Not(HasSubstr("reserved"))) << session.report();
  }
}

/// The smallest budget for a step with so many layers.
Bytes smallest_for(int layers) {
  Session session(testing::offload_everything());
  TinyModel model({.layers = kLayers});
  session.register_model(model);
  std::vector<bool> dropped;
  for (int i = 0; i < kLayers; ++i) dropped.push_back(i >= layers);
  for (int i = 0; i < 2; ++i) {
    model.zero_gradients();
    session.record_next_step();
    const auto step = session.step();
    (void)step_without(model, i, dropped);
  }
  return smallest_budget(*session.profile(), {}).budget;
}

/// Fits a step with two layers, and none with all of them.
Budget budget_between() {
  static const Bytes two = smallest_for(2);
  static const Bytes all = smallest_for(kLayers);
  EXPECT_LT(two + 32_KiB, all);
  return {Bytes((two.count() + all.count()) / 2)};
}

/// First only the first two layers, then all.
at::Tensor growing_step(TinyModel& model, Step* /*step*/, int i) {
  const bool drops = i < 6;
  return step_without(model, i, {false, false, drops, drops, drops});
}

void expect_smallest_plan(const Session& session, Budget budget) {
  const SessionReport report = session.report();
  EXPECT_EQ(report.fallbacks.at(kNoPlanFits), 1U) << report;
  EXPECT_THAT(report.budget->problem, HasSubstr("no plan fits"));
  EXPECT_TRUE(report.budget->planned);
  EXPECT_EQ(report.budget->budget, budget.resolve({}, {}));
  EXPECT_GT(report.budget->predicted_peak, report.budget->budget);
  EXPECT_EQ(session.plan()->predicted_peak, report.budget->predicted_peak);
}

TEST(LayerDrop, ContinuesUnderTheSmallestPlanWhereNoneFits) {
  const Budget budget = budget_between();
  Session session(planned_within(budget));
  EXPECT_EQ(difference({.layers = kLayers}, session, 12, growing_step), 0);
  expect_smallest_plan(session, budget);
  EXPECT_EQ(session.report().last_step->kind, StepKind::kPlanned);
}

TEST(LayerDrop, ContinuesUnderTheSmallestPlanOfAPlannerInTheBackground) {
  const Budget budget = budget_between();
  SessionOptions options = planned_within(budget);
  options.plan_in_background = true;
  Session session(std::move(options));
  TinyModel model({.layers = kLayers});
  session.register_model(model);
  for (int i = 0; i < 12; ++i) {
    session.wait_for_plan();
    model.zero_gradients();
    auto step = session.step();
    (void)growing_step(model, &step, i);
  }
  expect_smallest_plan(session, budget);
}

TEST(LayerDrop, ThrowsWhereNoPlanFitsIfItIsStrict) {
  SessionOptions options = planned_within(budget_between());
  options.strict = true;
  Session session(std::move(options));
  TinyModel model({.layers = kLayers});
  session.register_model(model);
  std::vector<int> errors;
  for (int i = 0; i < 12; ++i) {
    model.zero_gradients();
    try {
      auto step = session.step();
      (void)growing_step(model, &step, i);
    } catch (const PlanInfeasible&) {
      errors.push_back(i);
    }
  }
  // Step 6 diverges, step 7 records.
  EXPECT_EQ(errors, std::vector<int>{8}) << session.report();
  EXPECT_FALSE(session.report().fallbacks.contains(kNoPlanFits));
}

}  // namespace
}  // namespace spillway
