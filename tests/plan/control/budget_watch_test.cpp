#include "plan/control/budget_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway {
namespace {

using namespace spillway::literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Plan plan_within(Bytes budget, Bytes peak) {
  Plan plan;
  plan.budget = budget;
  plan.predicted_peak = peak;
  plan.predicted_step_ns = 100'000'000;
  return plan;
}

MeasuredStep step_of(StepKind kind, Bytes peak) { return {1, kind, 0_B, peak}; }

TEST(BudgetWatch, GrowsTheReserveByTheExcessThreeTimes) {
  const Plan plan = plan_within(8_GiB, 7_GiB);
  BudgetWatch watch(0.1);
  EXPECT_FALSE(watch.grow_reserve(plan, false)) << "nothing was measured";
  watch.step_ended(step_of(StepKind::kPlanned, 9_GiB), &plan);
  EXPECT_FALSE(watch.grow_reserve(plan, /*planning=*/true));
  EXPECT_TRUE(watch.grow_reserve(plan, false));
  EXPECT_EQ(watch.reserve(), 1_GiB);
  watch.reset_reserve();
  EXPECT_EQ(watch.reserve(), 0_B) << "replanning failed";
  EXPECT_TRUE(watch.grow_reserve(plan, false));
  watch.plan_made();
  watch.plan_replaced();
  EXPECT_FALSE(watch.grow_reserve(plan, false)) << "nothing was measured with the new plan";
  watch.note_excess_of_others(2_GiB);
  EXPECT_TRUE(watch.grow_reserve(plan, false));
  EXPECT_EQ(watch.reserve(), 3_GiB);
  watch.note_excess_of_others(2_GiB);
  EXPECT_FALSE(watch.grow_reserve(plan, false)) << "the fourth time";
  watch.profile_replaced();
  EXPECT_EQ(watch.reserve(), 0_B);
  watch.note_excess_of_others(2_GiB);
  EXPECT_TRUE(watch.grow_reserve(plan, false));
}

TEST(BudgetWatch, DoesNotGrowAReserveThatDoesNotFit) {
  const Plan plan = plan_within(8_GiB, 7_GiB);
  BudgetWatch watch(0.1);
  watch.reserve_does_not_fit();
  watch.step_ended(step_of(StepKind::kPlanned, 9_GiB), &plan);
  EXPECT_FALSE(watch.grow_reserve(plan, false));
  const Plan over = plan_within(8_GiB, 9_GiB);
  watch.profile_replaced();
  EXPECT_FALSE(watch.grow_reserve(over, false)) << "it was predicted";
}

TEST(BudgetWatch, CountsStepsByKind) {
  const Plan plan = plan_within(8_GiB, 7_GiB);
  BudgetWatch watch(0.1);
  for (const Bytes peak : {5_GiB, 9_GiB, 6_GiB}) {
    watch.step_ended(step_of(StepKind::kPlanned, peak), &plan);
  }
  watch.step_ended(step_of(StepKind::kDiverged, 10_GiB), &plan);
  watch.step_ended(step_of(StepKind::kVerification, 11_GiB), &plan);
  watch.step_ended(step_of(StepKind::kUnplanned, 12_GiB), nullptr);
  BudgetReport report;
  watch.report(report, &plan);
  EXPECT_EQ(report.steps.at(StepKind::kPlanned).steps, 3U);
  EXPECT_EQ(report.steps.at(StepKind::kPlanned).peak, 9_GiB);
  EXPECT_EQ(report.unplanned_steps, 1U);
  EXPECT_EQ(report.measured_steps, 3U);
  EXPECT_EQ(report.measured_peak, 6_GiB);
  EXPECT_EQ(report.verification_peak, 11_GiB);
  EXPECT_EQ(report.over_budget_steps, 2U) << "a planned and a diverged one";
}

TEST(BudgetWatch, SaysHowStepsDifferFromThePrediction) {
  const Plan plan = plan_within(8_GiB, 4_GiB);
  BudgetWatch watch(0.1);
  EXPECT_THAT(watch.drift(nullptr), IsEmpty());
  watch.note_time(Nanoseconds(105'000'000));
  watch.step_ended(step_of(StepKind::kPlanned, 5_GiB), &plan);
  EXPECT_THAT(watch.drift(&plan), ElementsAre("the peak is 5.0 GiB, 25.0 % more than predicted"));
  watch.note_time(Nanoseconds(50'000'000));
  EXPECT_THAT(watch.drift(&plan), ElementsAre("the step takes 50.00 ms, 50.0 % less than predicted",
                                              "the peak is 5.0 GiB, 25.0 % more than predicted"));
  EXPECT_TRUE(watch.begins_to_drift(true));
  EXPECT_FALSE(watch.begins_to_drift(true)) << "once";
  EXPECT_FALSE(watch.begins_to_drift(false));
  EXPECT_TRUE(watch.begins_to_drift(true)) << "until a step was as predicted again";
  watch.plan_replaced();
  EXPECT_THAT(watch.drift(&plan), IsEmpty());
}

TEST(BudgetWatch, WarnsOnceOfStepsThatNoPlanHolds) {
  const Plan plan = plan_within(8_GiB, 7_GiB);
  BudgetWatch watch(0.1);
  watch.step_ended(step_of(StepKind::kPlanned, 9_GiB), &plan);
  EXPECT_EQ(watch.over_budget_warning(8_GiB), "") << "the plan is to be corrected";
  watch.step_ended(step_of(StepKind::kRecording, 10_GiB), nullptr);
  EXPECT_EQ(watch.over_budget_warning(0_B), "") << "the budget is not known";
  EXPECT_THAT(watch.over_budget_warning(8_GiB),
              HasSubstr("more than the budget of 8.0 GiB (recording steps: up to 10.0 GiB)"));
  EXPECT_EQ(watch.over_budget_warning(8_GiB), "");
}

}  // namespace
}  // namespace spillway
