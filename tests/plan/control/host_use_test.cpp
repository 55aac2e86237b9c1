#include "plan/control/host_use.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

using namespace spillway::literals;

HostUse::Step steady(Bytes reach, Bytes pinned) {
  return {.steady = true, .verified = false, .reach = reach, .pinned = pinned};
}

TEST(HostUse, GivesBackAfterSomeSteadySteps) {
  HostUse use(/*verify_every=*/0, 0_B);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(use.step_ended(steady(800_MiB, 4_GiB)), std::nullopt);
  EXPECT_EQ(use.step_ended({.reach = 4_GiB, .pinned = 4_GiB}), std::nullopt) << "it was not steady";
  EXPECT_EQ(use.step_ended(steady(600_MiB, 4_GiB)), 900_MiB);
  EXPECT_EQ(use.step_ended(steady(800_MiB, 900_MiB)), std::nullopt) << "settled";
}

TEST(HostUse, KeepsWhatWasToBePrepared) {
  HostUse use(/*verify_every=*/0, 2_GiB);
  for (int i = 0; i < 3; ++i) (void)use.step_ended(steady(8_MiB, 4_GiB));
  EXPECT_EQ(use.step_ended(steady(8_MiB, 4_GiB)), 2_GiB);
}

TEST(HostUse, GivesNothingBackThatIsNotWorthIt) {
  HostUse use(/*verify_every=*/0, 0_B);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(use.step_ended(steady(800_MiB, 1_GiB)), std::nullopt);
  }
}

TEST(HostUse, LooksLongerIfThatWasNeededAgain) {
  HostUse use(/*verify_every=*/0, 0_B);
  for (int i = 0; i < 4; ++i) (void)use.step_ended(steady(800_MiB, 4_GiB));
  (void)use.step_ended(steady(2_GiB, 2_GiB));
  use.plan_adopted();
  for (int i = 0; i < 7; ++i) EXPECT_EQ(use.step_ended(steady(800_MiB, 4_GiB)), std::nullopt);
  EXPECT_EQ(use.step_ended(steady(800_MiB, 4_GiB)), 900_MiB);
}

TEST(HostUse, WaitsForAVerificationThatComesAgain) {
  HostUse use(/*verify_every=*/10, 0_B);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(use.step_ended(steady(800_MiB, 4_GiB)), std::nullopt);
  EXPECT_EQ(use.step_ended({.steady = true, .verified = true, .reach = 1600_MiB, .pinned = 4_GiB}),
            1800_MiB);
}

}  // namespace
}  // namespace spillway
