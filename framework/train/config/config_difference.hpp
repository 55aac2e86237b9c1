/// Whether a run may go on with another config.
#pragma once

#include <string>
#include <vector>

#include "train/config/config.hpp"

namespace spillway::app {

/// What would give other parameters than the run that `saved` is of: one text each, such as
/// "model.layers: 8 then, 4 now". The number of stages, memory and files written to are free; so is
/// the number of data ranks as long as a step has as many micro-batches in all.
[[nodiscard]] std::vector<std::string> differences(const TrainConfig& saved,
                                                   const TrainConfig& now);

}  // namespace spillway::app
