/// What tests of recomputation ask of plans.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "plan_queries.hpp"
#include "replay_check.hpp"

namespace spillway::testing {

inline constexpr const char* kRecompute =
    "[[rule]]\nscope = \"recomputed\"\naction = \"recompute\"\n";

inline std::vector<int> calls(const Plan& plan) {
  std::vector<int> numbers;
  for (const RecordedOperator& each : plan.chunks.at(0).operators) numbers.push_back(each.call);
  return numbers;
}

/// "call:output why" of each anchor.
inline std::vector<std::string> anchors(const Plan& plan) {
  std::vector<std::string> texts;
  for (const Anchor& each : plan.chunks.at(0).anchors) {
    texts.push_back(std::to_string(each.call) + ":" + std::to_string(each.output) + " " +
                    each.reason);
  }
  return texts;
}

inline Plan checked_plan(const Profile& profile, const std::string& rules) {
  Plan plan = plan_by(profile, rules);
  check_replays(plan, profile);
  EXPECT_EQ(plan_by(profile, rules), plan);
  return plan;
}

}  // namespace spillway::testing
