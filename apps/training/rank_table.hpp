/// What every rank of a run did with its memory, in one table.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "spillway/torch/session_report.hpp"
#include "training/job.hpp"

namespace spillway::app {

/// One rank's line.
[[nodiscard]] nlohmann::ordered_json rank_figures(int rank, const TrainingJob& job,
                                                  const SessionReport& report, Bytes step_peak);

/// The lines of all ranks, on every rank.
/// Ordering: collective over `everyone`.
[[nodiscard]] std::vector<nlohmann::ordered_json> gather_figures(const Group& everyone,
                                                                 const nlohmann::ordered_json& mine,
                                                                 at::Device device);

[[nodiscard]] std::string rank_table(const std::vector<nlohmann::ordered_json>& ranks);

}  // namespace spillway::app
