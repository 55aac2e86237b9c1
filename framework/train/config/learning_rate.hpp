/// The learning rate of a step.
#pragma once

#include <cstdint>

#include "train/config/config.hpp"

namespace spillway::app {

/// Of step `step`, from 0, in a run of `steps`. Warm-up: (step + 1) / warm_up of the full rate, in
/// the first warm_up steps. Then, for "cosine", half a cosine from the full rate down to
/// min_learning_rate, which the last step has; for "constant" the full rate.
[[nodiscard]] double learning_rate(const OptimizerConfig& config, std::int64_t steps,
                                   std::int64_t step);

}  // namespace spillway::app
