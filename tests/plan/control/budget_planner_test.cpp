// Planning for a budget, by the planner itself.
#include "plan/control/budget_planner.hpp"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/control/fake_session.hpp"
#include "plan/control/plan_controller.hpp"
#include "plan/support/synthetic_timeline.hpp"
#include "spillway/core/error.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using ::testing::ElementsAre;
using testing::error_text;
using testing::FakeSession;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::llama_profile;

ControllerOptions within(Budget budget) {
  ControllerOptions options;
  options.budget = budget;
  options.plan_in_background = false;
  options.planning_time = std::chrono::milliseconds(300);
  return options;
}

/// A session whose first step has recorded a small Llama.
struct Recorded {
  explicit Recorded(ControllerOptions options, Profile profile = llama_profile(2))
      : controller(std::move(options), session) {
    session.on_device = profile.fixed;
    record(std::move(profile));
  }

  void record(Profile profile) {
    controller.begin_step({});
    controller.count_step();
    Recording recording;
    recording.schedule = one_pass(profile);
    recording.profile = std::move(profile);
    EXPECT_FALSE(controller.adopt_recording(std::move(recording)));
    controller.end_step();
  }

  /// A step that had `peak`.
  StepTask run(Bytes peak = {}, const PassSchedule& schedule = {}) {
    controller.prepare(schedule);
    controller.begin_step({.recomputes = true});
    const StepTask task = controller.step();
    controller.count_step();
    const StepKind kind = controller.kind_of_step(/*as_profiled=*/true, /*traced=*/false);
    controller.note_measured({controller.steps(), kind, 0_B, peak});
    controller.end_step();
    return task;
  }

  [[nodiscard]] BudgetReport report() { return controller.report(); }

  FakeSession session;
  PlanController controller;
};

TEST(BudgetPlanner, PlansWhatWasRecorded) {
  Recorded made(within(Budget::share(0.8)));
  EXPECT_EQ(made.session.adopted, 2) << "everything offloaded, then the plan";
  EXPECT_FALSE(made.controller.due().due(StepMode::kInterim));
  ASSERT_TRUE(made.controller.current().plan()->budget.has_value());
  std::vector<StepMode> modes;
  for (int i = 0; i < 3; ++i) modes.push_back(made.run().mode);
  EXPECT_THAT(modes, ElementsAre(StepMode::kVerifying, StepMode::kTiming, StepMode::kSteady));
  EXPECT_TRUE(made.run().measures);
  const BudgetReport report = made.report();
  EXPECT_TRUE(report.planned);
  EXPECT_EQ(report.plans, 1U);
  EXPECT_EQ(report.budget, *made.controller.current().plan()->budget);
  EXPECT_LE(report.predicted_peak, report.budget);
  EXPECT_EQ(report.problem, "");
  EXPECT_THAT(made.session.fallbacks, IsEmpty());
}

TEST(BudgetPlanner, OffloadsEverythingUntilThereIsAPlan) {
  ControllerOptions options = within(Budget::share(0.8));
  options.plan_in_background = true;
  Recorded made(std::move(options));
  EXPECT_EQ(made.session.adopted, 1);
  EXPECT_EQ(made.controller.due().next(), StepMode::kInterim);
  for (const Decision& decision : made.controller.current().plan()->chunks[0].decisions) {
    if (decision.fixed != FixedReason::kNone) continue;
    EXPECT_EQ(decision.action.kind, ActionKind::kOffload);
  }
  EXPECT_FALSE(made.report().planned);
  made.controller.budget().wait_for_plan();
  EXPECT_EQ(made.controller.due().next(), StepMode::kVerifying);
  EXPECT_TRUE(made.report().planned);
}

TEST(BudgetPlanner, ReplansWithAReserveThreeTimesWhereStepsAreOverBudget) {
  Recorded made(within(Budget::share(0.8)));
  const Bytes budget = *made.controller.current().plan()->budget;
  for (int i = 0; i < 2; ++i) (void)made.run();
  for (int i = 0; i < 20; ++i) (void)made.run(budget + 1_MiB);
  EXPECT_EQ(made.report().plans, 4U);
  EXPECT_EQ(made.controller.budget().watch().reserve(), 3_MiB);
  EXPECT_GT(made.report().over_budget_steps, 0U);
}

TEST(BudgetPlanner, ThrowsOnceAndThenGoesOnUnderTheSmallestPlan) {
  Recorded made(within(Budget(1_MiB)));
  const std::string text = error_text<PlanInfeasible>([&] { made.controller.prepare({}); });
  EXPECT_THAT(text, HasSubstr("no plan fits 1.0 MiB"));
  EXPECT_EQ(made.run().mode, StepMode::kInterim) << "the error is dealt with";
  EXPECT_THAT(made.session.warnings, IsEmpty());
  made.controller.ask_to_record();
  made.record(llama_profile(2));
  EXPECT_EQ(made.run().mode, StepMode::kVerifying) << "of the plan with the smallest peak";
  EXPECT_THAT(made.session.warnings, ElementsAre(HasSubstr("training continues under the plan")));
  EXPECT_THAT(made.session.fallbacks,
              ElementsAre(HasSubstr("the one with the smallest peak is executed")));
  EXPECT_THAT(made.report().problem, HasSubstr("no plan fits 1.0 MiB"));
}

TEST(BudgetPlanner, ThrowsAlwaysIfItIsStrict) {
  ControllerOptions options = within(Budget(1_MiB));
  options.strict = true;
  Recorded made(std::move(options));
  EXPECT_THROW(made.controller.prepare({}), PlanInfeasible);
  made.controller.ask_to_record();
  made.record(llama_profile(2));
  EXPECT_THROW(made.controller.prepare({}), PlanInfeasible);
  EXPECT_THAT(made.session.warnings, IsEmpty());
}

TEST(BudgetPlanner, RecordsOnceMoreWhereTheFirstStepLeftMemoryAllocated) {
  Recorded made(within(Budget(1_MiB)));
  made.session.on_device += 1_MiB;
  EXPECT_EQ(made.run().mode, StepMode::kRecording);
  made.record(llama_profile(2));
  EXPECT_THROW(made.controller.prepare({}), PlanInfeasible) << "once";
}

TEST(BudgetPlanner, RecordsAgainWhereTheFirstStepFreedMemory) {
  FakeSession session;
  session.on_device = 1_GiB;
  PlanController controller(within(Budget::share(0.8)), session);
  controller.begin_step({});
  Recording recording;
  recording.profile = llama_profile(2);
  recording.profile.fixed = 2_GiB;
  recording.schedule = one_pass(recording.profile);
  recording.peak = 6_GiB;
  (void)controller.adopt_recording(std::move(recording));
  EXPECT_TRUE(controller.records_next());
  EXPECT_THAT(session.fallbacks, ElementsAre(HasSubstr("was freed in it: recorded again")));
}

TEST(BudgetPlanner, DoesNotAdoptAPlanForTheLastProfile) {
  ControllerOptions options = within(Budget::share(0.8));
  options.plan_in_background = true;
  Recorded made(std::move(options));
  EXPECT_TRUE(made.controller.budget().is_planning());
  made.controller.ask_to_record();
  Profile untimed = llama_profile(3);
  untimed.chunks[0].timeline.clear();
  made.record(std::move(untimed));
  EXPECT_FALSE(made.controller.budget().is_planning()) << "the planner needs times";
  made.controller.budget().wait_for_plan();
  EXPECT_TRUE(made.controller.due().due(StepMode::kInterim));
  EXPECT_TRUE(made_for(*made.controller.current().plan(), *made.controller.current().profile()));
}

TEST(BudgetPlanner, PlansForEachScheduleAndKeepsThePlans) {
  Recorded made(within(Budget::share(0.8)));
  const PassSchedule one = one_pass(*made.controller.current().profile());
  const PassSchedule two = accumulate(*made.controller.current().profile(), 2);
  EXPECT_EQ(made.run({}, one).mode, StepMode::kVerifying);
  const std::shared_ptr<const Plan> first = made.controller.current().plan();
  EXPECT_EQ(made.run({}, two).mode, StepMode::kVerifying);
  EXPECT_EQ(made.controller.current().schedule(), two);
  EXPECT_EQ(made.report().plans, 2U);
  EXPECT_NE(made.run({}, one).mode, StepMode::kVerifying) << "the plan was verified";
  EXPECT_EQ(*made.controller.current().plan(), *first);
  EXPECT_EQ(made.report().plans, 2U);
}

TEST(BudgetPlanner, LeavesPlanningToTheFirstRank) {
  FakeSession session;
  session.planning_ranks = {.together = true, .first = false};
  PlanController controller(within(Budget::share(0.8)), session);
  controller.begin_step({});
  Recording recording;
  recording.profile = llama_profile(2);
  recording.schedule = one_pass(recording.profile);
  const Plan plan = make_plan(recording.profile, {});
  (void)controller.adopt_recording(std::move(recording));
  controller.end_step();
  EXPECT_EQ(controller.due().next(), StepMode::kInterim);
  EXPECT_FALSE(controller.budget().is_planning());
  controller.adopt_shared(plan);
  EXPECT_EQ(controller.due().next(), StepMode::kVerifying);
  EXPECT_FALSE(controller.due().due(StepMode::kTiming)) << "only the first rank plans by times";
}

TEST(BudgetPlanner, RecordsAgainWhereAProfileHasNoTimes) {
  Profile untimed = llama_profile(2);
  untimed.chunks[0].timeline.clear();
  Recorded made(within(Budget::share(0.8)), std::move(untimed));
  EXPECT_THAT(made.session.fallbacks, ElementsAre(HasSubstr("so they have no times")));
  EXPECT_EQ(made.run().mode, StepMode::kRecording);
}

}  // namespace
}  // namespace spillway
