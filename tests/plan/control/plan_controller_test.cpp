#include "plan/control/plan_controller.hpp"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/control/fake_session.hpp"
#include "plan/support/synthetic_timeline.hpp"
#include "spillway/core/error.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using ::testing::ElementsAre;
using testing::FakeSession;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::llama_profile;

/// A plan of these rules recomputes, so it is verified.
ControllerOptions by_rules() {
  ControllerOptions options;
  options.rules = parse_rules("[[rule]]\nmodule = [\"mlp\"]\naction = \"recompute\"\n", "r.toml");
  return options;
}

Recording recording_of(int layers, int micro_batches = 1) {
  Recording recording;
  recording.profile = llama_profile(layers);
  recording.schedule = accumulate(recording.profile, micro_batches);
  return recording;
}

/// A step from its begin to its end. Returns what it was to do.
StepTask run_step(PlanController& controller) {
  controller.begin_step({.recomputes = true});
  const StepTask task = controller.step();
  controller.count_step();
  controller.end_step();
  return task;
}

StepTask record(PlanController& controller, Recording recording, bool fits_windows = true) {
  controller.begin_step({});
  const StepTask task = controller.step();
  controller.count_step();
  EXPECT_EQ(controller.adopt_recording(std::move(recording)), fits_windows);
  controller.end_step();
  return task;
}

TEST(PlanController, RecordsVerifiesTimesAndGoesOn) {
  FakeSession session;
  PlanController controller(by_rules(), session);
  EXPECT_TRUE(controller.records_next());
  const StepTask recorded = record(controller, recording_of(2));
  EXPECT_EQ(recorded.mode, StepMode::kRecording);
  EXPECT_TRUE(recorded.checks_copies);
  EXPECT_TRUE(recorded.signs_saves);
  EXPECT_EQ(session.adopted, 1);
  const StepTask verified = run_step(controller);
  EXPECT_EQ(verified.mode, StepMode::kVerifying);
  EXPECT_TRUE(verified.checks_copies);
  EXPECT_EQ(run_step(controller).mode, StepMode::kTiming);
  const StepTask steady = run_step(controller);
  EXPECT_EQ(steady.mode, StepMode::kSteady);
  EXPECT_FALSE(steady.checks_copies);
  EXPECT_FALSE(steady.measures) << "there is no budget";
  EXPECT_EQ(controller.steps(), 4U);
  EXPECT_THAT(session.fallbacks, IsEmpty());
}

TEST(PlanController, VerifiesEveryNthStep) {
  FakeSession session;
  ControllerOptions options = by_rules();
  options.verify_every = 3;
  PlanController controller(std::move(options), session);
  (void)record(controller, recording_of(2));
  std::vector<StepMode> modes;
  for (int i = 0; i < 6; ++i) modes.push_back(run_step(controller).mode);
  EXPECT_THAT(modes, ElementsAre(StepMode::kVerifying, StepMode::kVerifying, StepMode::kTiming,
                                 StepMode::kSteady, StepMode::kVerifying, StepMode::kSteady));
}

TEST(PlanController, TimesAPlanThatRecomputesNothingWhileItChecksCopies) {
  FakeSession session;
  PlanController controller(by_rules(), session);
  (void)record(controller, recording_of(2));
  controller.begin_step({.recomputes = false});
  EXPECT_EQ(controller.step().mode, StepMode::kTiming);
  EXPECT_TRUE(controller.step().checks_copies);
}

TEST(PlanController, DoesInTheNextStepWhatOneThatCouldNotBeginWasToDo) {
  FakeSession session;
  PlanController controller(by_rules(), session);
  (void)record(controller, recording_of(2));
  controller.ask_to_trace();
  controller.begin_step({.recomputes = true});
  EXPECT_TRUE(controller.step().traces);
  controller.cancel_step();
  EXPECT_EQ(controller.step().mode, StepMode::kSteady);
  EXPECT_FALSE(controller.step().traces);
  controller.cancel_step();  // Nothing has begun since.
  const StepTask task = run_step(controller);
  EXPECT_EQ(task.mode, StepMode::kVerifying);
  EXPECT_TRUE(task.traces);
  EXPECT_FALSE(run_step(controller).traces);
}

TEST(PlanController, RecordsUnknownSavesAndGoesOnIfThatIsOfNoUse) {
  FakeSession session;
  PlanController controller(by_rules(), session);
  EXPECT_EQ(record(controller, recording_of(2)).cause, RecordingCause::kAsked);
  controller.note_unknown_saves();
  const StepTask task = run_step(controller);
  EXPECT_EQ(task.mode, StepMode::kRecording);
  EXPECT_EQ(task.cause, RecordingCause::kUnknownSaves);
  EXPECT_EQ(run_step(controller).mode, StepMode::kVerifying) << "of the plan from before";
  controller.note_unknown_saves();
  controller.ask_to_record();
  EXPECT_EQ(run_step(controller).cause, RecordingCause::kAsked);
  controller.note_unknown_saves();
  EXPECT_TRUE(controller.records_next());
  (void)run_step(controller);
  controller.note_unknown_saves();
  EXPECT_FALSE(controller.records_next()) << "the fourth time it waits";
}

TEST(PlanController, ExecutesAGivenPlanWithoutRecording) {
  const Profile profile = llama_profile(2);
  FakeSession session;
  PlanController controller(by_rules(), session);
  controller.use_plan(make_plan(profile, {}));
  EXPECT_FALSE(controller.records_next());
  EXPECT_TRUE(controller.current().is_given());
  controller.begin_step({});
  EXPECT_TRUE(controller.step().signs_saves) << "it may be of another model";
  controller.end_step();
  controller.ask_to_record();
  (void)record(controller, recording_of(2), false);
  EXPECT_EQ(session.adopted, 2);
  EXPECT_TRUE(controller.current().is_given());
  EXPECT_THAT(session.fallbacks, IsEmpty());
  controller.ask_to_record();
  (void)record(controller, recording_of(3), true);
  EXPECT_FALSE(controller.current().is_given());
  EXPECT_THAT(session.fallbacks, ElementsAre(HasSubstr("made for another structure")));
}

TEST(PlanController, GoesOnUnderAGivenPlanThatIsOverItsBudget) {
  FakeSession session;
  ControllerOptions options;
  options.budget = Budget(1_GiB);
  PlanController controller(std::move(options), session);
  Plan plan = make_plan(llama_profile(2), {});
  plan.budget = 1_GiB;
  plan.predicted_peak = 1_GiB;
  controller.use_plan(std::move(plan));
  for (int i = 0; i < 3; ++i) {
    controller.prepare({});
    EXPECT_NE(run_step(controller).mode, StepMode::kRecording);
    controller.note_measured({controller.steps(), StepKind::kPlanned, 0_B, 2_GiB});
  }
  EXPECT_FALSE(controller.budget().is_planning()) << "nothing was recorded";
  EXPECT_EQ(controller.report().over_budget_steps, 3U);
  EXPECT_THAT(session.fallbacks, IsEmpty());
}

TEST(PlanController, RefusesAPlanForAnotherStructure) {
  FakeSession session;
  PlanController controller(by_rules(), session);
  (void)record(controller, recording_of(2));
  const std::string text = testing::error_text<InvalidArgument>(
      [&] { controller.use_plan(make_plan(llama_profile(3), {})); });
  EXPECT_THAT(text, HasSubstr("the plan was made for another structure than the one recorded"));
  EXPECT_FALSE(controller.current().is_given());
  EXPECT_EQ(session.adopted, 1);
}

TEST(PlanController, DoesNotVerifyACachedPlanAgain) {
  FakeSession session;
  PlanController controller(by_rules(), session);
  (void)record(controller, recording_of(2));
  (void)run_step(controller);
  (void)run_step(controller);
  CurrentPlan& current = controller.current();
  const PassSchedule one = current.schedule();
  const PassSchedule two = accumulate(*current.profile(), 2);
  const std::shared_ptr<const Plan> plan = current.plan();
  current.note_demoted("a buffer: why");
  PlanningProblem problem;
  EXPECT_FALSE(current.switch_to(two, problem));
  EXPECT_EQ(current.schedule(), two);
  Plan other = *plan;
  other.notes = {"of two micro-batches"};
  current.adopt(other);
  controller.verify_again();
  EXPECT_TRUE(current.switch_to(one, problem));
  EXPECT_EQ(*current.plan(), *plan);
  EXPECT_THAT(current.demoted(), ElementsAre("a buffer: why"));
  EXPECT_EQ(run_step(controller).mode, StepMode::kSteady);
  EXPECT_TRUE(current.switch_to(two, problem));
  EXPECT_EQ(run_step(controller).mode, StepMode::kVerifying);
}

TEST(PlanController, VerifiesWhenAskedWhicheverPlanTheStepExecutes) {
  FakeSession session;
  PlanController controller(by_rules(), session);
  (void)record(controller, recording_of(2));
  (void)run_step(controller);
  (void)run_step(controller);
  CurrentPlan& current = controller.current();
  const PassSchedule one = current.schedule();
  PlanningProblem problem;
  EXPECT_FALSE(current.switch_to(accumulate(*current.profile(), 2), problem));
  controller.ask_to_verify();
  EXPECT_TRUE(current.switch_to(one, problem)) << "a plan that was verified";
  EXPECT_EQ(run_step(controller).mode, StepMode::kVerifying);
  EXPECT_EQ(run_step(controller).mode, StepMode::kSteady);
  controller.ask_to_record();
  controller.ask_to_verify();
  EXPECT_EQ(run_step(controller).mode, StepMode::kRecording);
  EXPECT_EQ(run_step(controller).mode, StepMode::kVerifying) << "it was still to come";
}

TEST(PlanController, KeepsHostMemoryAsLongAsSomethingMayChange) {
  FakeSession session;
  PlanController controller(by_rules(), session);
  (void)record(controller, recording_of(2));
  const StepTask steady;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(controller.host_memory_to_keep(steady, 1_GiB, 8_GiB), std::nullopt)
        << "a step is to be timed";
  }
  (void)run_step(controller);
  (void)run_step(controller);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(controller.host_memory_to_keep(steady, 1_GiB, 8_GiB), std::nullopt);
  }
  EXPECT_NE(controller.host_memory_to_keep(steady, 1_GiB, 8_GiB), std::nullopt);
}

}  // namespace
}  // namespace spillway
