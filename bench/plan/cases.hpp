/// What bench_plan plans for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spillway/plan/planner.hpp"
#include "spillway/plan/profile.hpp"

namespace spillway::bench {

/// A profile, and the budgets to plan for.
struct PlanCase {
  std::string id;    ///< "16".
  std::string text;  ///< "16 layers".
  Profile profile;
  PassSchedule schedule;
  std::vector<Bytes> budgets;
  std::optional<double> wanted_seconds;  ///< For each plan, at most.
};

/// The names of the cases: "16", "126", "1f1b".
[[nodiscard]] const std::vector<std::string>& plan_cases();

/// `small`: the same with few layers.
[[nodiscard]] PlanCase plan_case(const std::string& id, bool small);

/// One pass of a profile that was saved.
/// Errors: as load_profile().
[[nodiscard]] PlanCase plan_case_of_file(const std::string& file);

}  // namespace spillway::bench
