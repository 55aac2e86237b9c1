/// One plan for all ranks of a shard group; internal.
///
/// Ranks measure different times, and a planner that reaches its time limit stops at any point: the
/// ranks of a shard group would never have the same plan. So the first rank plans, and the others
/// use its plan.
///
/// Order:   share() is collective: all ranks call it before each step. It blocks for all of them.
/// Threads: one at a time; the session's lock.
/// Errors:  of the group, where another rank does not take part. What the first rank's planner
///          threw is returned on all ranks: one that went on would hang.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "spillway/core/bytes.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/torch/shard_group.hpp"

namespace spillway {

class SharedPlan {
 public:
  /// Why the first rank has no plan.
  struct Problem {
    std::string text;  ///< Of the first rank's error.
    bool infeasible = false;

    /// As the first rank's planner did, PlanInfeasible; or InvalidArgument.
    [[noreturn]] void raise() const;
  };

  struct Mine {
    bool in_use = false;  ///< The adopted plan is; otherwise this rank records, or has none.
    Bytes excess = {};    ///< By which it was over its budget.
    std::exception_ptr error = nullptr;  ///< Of this rank's planner.
  };

  struct Answer {
    std::optional<Problem> problem;  ///< If so, the rest is empty.
    Bytes excess;  ///< The largest one of the other ranks that use the first rank's plan.
    std::optional<std::string> plan;  ///< The first rank's, as JSON, if this rank uses another one.
  };

  /// The plan that this rank has adopted, from the first rank or its own planner; null: none that
  /// the others could use.
  void adopt(std::shared_ptr<const Plan> plan);
  [[nodiscard]] bool has_plan() const noexcept { return plan_ != nullptr; }

  /// Precondition: has_plan() where `mine.in_use`.
  [[nodiscard]] Answer share(ShardGroup& group, const Mine& mine) const;

 private:
  std::shared_ptr<const Plan> plan_;
  std::uint64_t word_ = 0;  // Of its text; 0: there is none.
};

}  // namespace spillway
