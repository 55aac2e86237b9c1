// Windows that the session fits to the profile because none is given.
#include <gtest/gtest.h>

#include "torch/support/training.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::difference;
using testing::gpipe_step;
using testing::single_step;
using testing::TinyModel;

SessionOptions without_windows(const std::string& rules) {
  SessionOptions options = testing::with_rules(rules);
  options.offload_window = options.prefetch_window = std::nullopt;
  return options;
}

constexpr const char* kOffload = "[[rule]]\naction = \"offload\"\n";
constexpr const char* kMixed =
    "[[rule]]\nproducer = \"aten::gelu\"\naction = \"recompute\"\n[[rule]]\naction = \"offload\"\n";

/// Whether the plan has fitted windows.
bool has_windows(const Plan& plan) {
  return !plan.chunks[0].forward_allowance.empty() ||
         (plan.limits.offload_window && plan.limits.prefetch_window);
}

TEST(FittedWindows, KeepTheBitsAndOffload) {
  for (const char* rules : {kOffload, kMixed}) {
    Session session(without_windows(rules));
    EXPECT_EQ(difference({}, session, 6, single_step), 0);
    EXPECT_TRUE(has_windows(*session.plan()));
    const SessionReport report = session.report();
    EXPECT_GT(report.bytes_out, 0_B) << report;
    EXPECT_LT(report.saved_peak_with, report.saved_peak_without) << report;
    EXPECT_TRUE(report.fallbacks.empty()) << report;
    EXPECT_EQ(report.recorded_steps, 1U);
  }
}

TEST(FittedWindows, FollowTheNumberOfPassesInFlight) {
  Session session(without_windows(kOffload));
  const auto passes = [](TinyModel& model, Step* step, int i) {
    return gpipe_step(model, step, i, 1 + i % 3);
  };
  EXPECT_EQ(difference({}, session, 8, passes), 0);
  const SessionReport report = session.report();
  EXPECT_GT(report.bytes_out, 0_B) << report;
  EXPECT_TRUE(report.fallbacks.empty()) << report;
}

TEST(FittedWindows, StopWhereEveryStepHasAnotherOrder) {
  Session session(without_windows(kOffload));
  // Steps of 1, 2, 3, ... passes: more orders than are fitted or cached.
  const auto passes = [](TinyModel& model, Step* step, int i) {
    return gpipe_step(model, step, i, 1 + i % 20);
  };
  EXPECT_EQ(difference({}, session, 24, passes), 0);
  EXPECT_TRUE(session.plan()->chunks[0].forward_allowance.empty());
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
}

TEST(FittedWindows, AreNotUsedIfAnyWindowIsGiven) {
  SessionOptions options = without_windows(kOffload);
  options.offload_window = 64_KiB;
  Session session(options);
  EXPECT_EQ(difference({}, session, 4, single_step), 0);
  EXPECT_FALSE(has_windows(*session.plan()));
}

TEST(ConstantWindows, AreThoseOfThePlanThatRulesMade) {
  // A multiple of the offloaded modules of a layer, whose size only the profile has.
  const auto peak = [](int modules) {
    Session session(
        without_windows("[[rule]]\naction = \"offload\"\n[limits]\noffload_window_modules = " +
                        std::to_string(modules) + "\nprefetch_window = \"1 B\"\n"));
    EXPECT_EQ(difference({}, session, 4, single_step), 0);
    EXPECT_TRUE(session.plan()->limits.offload_window);
    return session.report().saved_peak_with;
  };
  EXPECT_LT(peak(0), peak(100));
}

}  // namespace
}  // namespace spillway
