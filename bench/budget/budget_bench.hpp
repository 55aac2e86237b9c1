/// Runs one model within budgets and compares predictions with measurements.
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
  bool clocks = false;           ///< Read the GPU's clock, in turns of several steps of a kind.
  std::filesystem::path traces;  ///< Folder for traces of a step without and within; empty: none.
};

/// Clock and power of the GPU in steps without and with a session, in turns of several of a kind.
struct ClockOutcome {
  std::vector<double> without, within;  ///< Of each turn, in MHz.
  std::vector<double> power_without, power_within;
  std::vector<double> capped_without, capped_within;
  std::vector<double> ratios;  ///< Of the median steps of the turns.
};

struct BudgetOutcome {
  Bytes budget;
  PlannedStep planned;
  std::vector<double> base;          ///< Steps without a session, in ms.
  std::vector<double> milliseconds;  ///< Steps within the budget, in turns with those.
  std::vector<double> ratios;        ///< milliseconds / base.
  Bytes peak;                        ///< The largest peak of a step within the budget.
  int different = 0;                 ///< Gradients that differ in a bit.
  SessionReport report;
  std::optional<ClockOutcome> clocks;
};

class BudgetBench {
 public:
  /// Errors: as ClockMeter, if `settings.clocks`.
  BudgetBench(const LlamaShape& shape, BudgetSettings settings);

  /// As users run it: a session that is given the budget and profiles, plans and verifies by
  /// itself. The other budgets are planned from its profile.
  [[nodiscard]] BudgetOutcome run_end_to_end(const BudgetRow& row);

  /// A session that carries out a plan for the profile of run_end_to_end().
  /// Precondition: that was called.
  [[nodiscard]] BudgetOutcome run_by_plan(const BudgetRow& row);

  /// Null before run_end_to_end().
  [[nodiscard]] std::shared_ptr<const Profile> profile() const { return profile_; }

  /// The peak of a step without a session.
  [[nodiscard]] Bytes base_peak() { return measured_.step(nullptr).peak; }

 private:
  [[nodiscard]] SessionOptions session_options(Bytes offloaded) const;
  /// Times steps in turns, then reads clocks and writes traces (as `name`) if asked to, then
  /// compares bits.
  void measure(const std::string& name, Session& session, BudgetOutcome& outcome);
  [[nodiscard]] ClockOutcome measure_clocks(Session& session);

  BudgetSettings settings_;
  app::MeasuredModel measured_;
  std::unique_ptr<ClockMeter> meter_;  // Null without --clocks.
  std::shared_ptr<const Profile> profile_;
};

}  // namespace spillway::bench
