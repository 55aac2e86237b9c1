/// What every rank of a run did with its memory, in one table.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "train/run/job.hpp"
#include "train/run/train_figures.hpp"

namespace spillway::app {

/// One rank's line. R is that of reached_reduction(), of peaks; where there is none, that of the
/// report, of saved buffers.
[[nodiscard]] nlohmann::ordered_json rank_figures(int rank, const TrainingJob& job,
                                                  const TrainFigures& figures);

/// The lines of all ranks, on every rank.
/// Ordering: collective over `everyone`.
[[nodiscard]] std::vector<nlohmann::ordered_json> gather_figures(const Group& everyone,
                                                                 const nlohmann::ordered_json& mine,
                                                                 at::Device device);

[[nodiscard]] std::string rank_table(const std::vector<nlohmann::ordered_json>& ranks);

}  // namespace spillway::app
