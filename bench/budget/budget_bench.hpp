/// Runs one model within budgets, and keeps what was predicted beside what was measured.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cases.hpp"
#include "spillway/plan/planner.hpp"
#include "spillway/torch/session.hpp"
#include "training/measured_model.hpp"

namespace spillway::bench {

struct BudgetOutcome {
  Bytes budget;
  PlannedStep planned;
  std::vector<double> base;          ///< Steps without a session, in turns with
  std::vector<double> milliseconds;  ///< steps within the budget,
  std::vector<double> ratios;        ///< and their ratios.
  Bytes peak;                        ///< The largest of those steps.
  int different = 0;                 ///< Gradients that differ in a bit.
  SessionReport report;
};

class BudgetBench {
 public:
  /// `fuse`: as SessionOptions::fuse_replays.
  BudgetBench(const LlamaShape& shape, int repeats, bool fuse);

  /// As a user has it: a session that is given the budget, records, proves, plans and goes on. Its
  /// profile is what the other budgets are planned from.
  [[nodiscard]] BudgetOutcome run_whole_way(const BudgetRow& row);

  /// By a plan for the profile of the whole way. Precondition: that was run.
  [[nodiscard]] BudgetOutcome run_by_plan(const BudgetRow& row);

  /// Null before the whole way was run.
  [[nodiscard]] std::shared_ptr<const Profile> profile() const { return profile_; }

  /// The peak of a step without a session.
  [[nodiscard]] Bytes base_peak() { return measured_.step(nullptr).peak; }

 private:
  [[nodiscard]] SessionOptions session_options(Bytes offloaded) const;
  /// Steps in turns, then the comparison of bits.
  void measure(Session& session, BudgetOutcome& outcome);

  int repeats_;
  bool fuse_;
  app::MeasuredModel measured_;
  std::shared_ptr<const Profile> profile_;
};

}  // namespace spillway::bench
