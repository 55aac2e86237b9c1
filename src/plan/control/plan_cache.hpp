/// The plans for other schedules than the current one; internal.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spillway/plan/plan.hpp"
#include "spillway/plan/schedule.hpp"

namespace spillway {

/// Why no plan fits the budget.
struct PlanningProblem {
  std::string text;          ///< Empty: there is a plan that fits.
  std::exception_ptr error;  ///< Not dealt with yet; null: none.
  /// With `error`, the plan with the smallest peak that was found; null: there is none at all.
  std::shared_ptr<const Plan> smallest;
};

struct CachedPlan {
  PassSchedule schedule;
  std::shared_ptr<const Plan> plan;  ///< Null: none was made.
  PlanningProblem problem;
  bool verified = false;
  std::vector<std::string> demoted;  ///< As in the report.
};

class PlanCache {
 public:
  /// Replaces the plan for the same schedule; where there are too many, drops the oldest.
  void put(CachedPlan plan);
  /// Removes the plan for the schedule, and returns it; empty if there is none.
  [[nodiscard]] std::optional<CachedPlan> take(const PassSchedule& schedule);
  /// They were made for another profile.
  void clear() noexcept { plans_.clear(); }

 private:
  std::vector<CachedPlan> plans_;  // Oldest first.
};

}  // namespace spillway
