/// What `spillway train` found, as a table and as JSON.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "training/comparison.hpp"

namespace spillway::app {

struct TrainFigures {
  std::string model;  ///< In words.
  bool on_gpu = false;
  std::optional<TrainingRun> without;
  TrainingRun with;
  SessionReport report;
  std::optional<Comparison> comparison;
};

/// Peaks, times, ratio, "bits equal: yes".
[[nodiscard]] std::string to_text(const TrainFigures& figures);
/// Schema "spillway.train/1".
[[nodiscard]] nlohmann::ordered_json to_json(const TrainFigures& figures);

}  // namespace spillway::app
