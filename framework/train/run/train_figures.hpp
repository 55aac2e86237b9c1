/// What `spillway train` found, as a table and as JSON.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "spillway/plan/peak_reduction.hpp"
#include "train/run/comparison.hpp"

namespace spillway::app {

struct TrainFigures {
  std::string model;  ///< In words.
  std::optional<TrainingRun> without;
  TrainingRun with;
  /// Steps that are not representative: libraries start, the session records and plans.
  std::size_t warm_up = 2;
  /// After so many steps the plan was the one that it stayed.
  std::size_t settled = 0;
  bool managed = true;               ///< `with` ran in a session; else report and plan are empty.
  std::shared_ptr<const Plan> plan;  ///< The executed one; may be null.
  SessionReport report;
  /// What the plan can lower the peak by; empty where the session recorded no times.
  std::optional<PeakReduction> reduction;
  std::optional<Comparison> comparison;
};

/// What steps after the warm-up that executed the plan had allocated at most, above what was there
/// before them. Where there are none, earlier ones: first those under the last plan. Empty if no
/// step executed a plan and nothing else.
[[nodiscard]] std::optional<Bytes> step_peak(const TrainFigures& figures);

/// By how much the peak of a step fell, as a share of what the plan can lower it by. Empty without
/// a run beside it that has no session, or where the simulator does not say.
[[nodiscard]] std::optional<double> reached_reduction(const TrainFigures& figures);

/// Peaks, times, ratio, with a budget also what was predicted, "bits equal: yes".
[[nodiscard]] std::string to_text(const TrainFigures& figures);
/// Schema "spillway.train/1".
[[nodiscard]] nlohmann::ordered_json to_json(const TrainFigures& figures);

}  // namespace spillway::app
