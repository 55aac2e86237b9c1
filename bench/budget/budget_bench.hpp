/// Runs one model within budgets, and keeps what was predicted beside what was measured.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cases.hpp"
#include "spillway/plan/planner.hpp"
#include "spillway/torch/session.hpp"
#include "support/clock_meter.hpp"
#include "train/run/measured_model.hpp"

namespace spillway::bench {

struct BudgetSettings {
  int repeats = 7;
  bool fuse = true;              ///< As SessionOptions::fuse_replays.
  bool clocks = false;           ///< Read the GPU's clock in steps that follow their own kind.
  std::filesystem::path traces;  ///< Traces of a step without and within go here; empty: none.
};

/// The GPU in steps without and with a session, in turns of several of a kind, so that its clock is
/// that of the kind.
struct ClockOutcome {
  std::vector<double> without, within;  ///< Of each turn, in MHz.
  std::vector<double> power_without, power_within;
  std::vector<double> capped_without, capped_within;
  std::vector<double> ratios;  ///< Of the turns' median steps.
};

struct BudgetOutcome {
  Bytes budget;
  PlannedStep planned;
  std::vector<double> base;          ///< Steps without a session, in turns with
  std::vector<double> milliseconds;  ///< steps within the budget,
  std::vector<double> ratios;        ///< and their ratios.
  Bytes peak;                        ///< The largest of those steps.
  int different = 0;                 ///< Gradients that differ in a bit.
  SessionReport report;
  std::optional<ClockOutcome> clocks;
};

class BudgetBench {
 public:
  /// Errors: as ClockMeter, if clocks are wanted.
  BudgetBench(const LlamaShape& shape, BudgetSettings settings);

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
  /// Steps in turns, then clocks and traces (as `name`) if wanted, then the comparison of bits.
  void measure(const std::string& name, Session& session, BudgetOutcome& outcome);
  [[nodiscard]] ClockOutcome measure_clocks(Session& session);

  BudgetSettings settings_;
  app::MeasuredModel measured_;
  std::unique_ptr<ClockMeter> meter_;  // Null unless clocks are wanted.
  std::shared_ptr<const Profile> profile_;
};

}  // namespace spillway::bench
