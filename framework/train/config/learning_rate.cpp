#include "train/config/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace spillway::app {

double learning_rate(const OptimizerConfig& config, std::int64_t steps, std::int64_t step) {
  const double full = config.learning_rate;
  if (step < config.warm_up) {
    return full * static_cast<double>(step + 1) / static_cast<double>(config.warm_up);
  }
  if (config.schedule == "constant") return full;
  const std::int64_t last = steps - 1;
  if (step >= last) return config.min_learning_rate;
  // The last step of the warm-up has the full rate, and without one the first step has it.
  const std::int64_t top = std::max<std::int64_t>(config.warm_up - 1, 0);
  const double way = static_cast<double>(step - top) / static_cast<double>(last - top);
  const double height = (1 + std::cos(std::numbers::pi * way)) / 2;
  return config.min_learning_rate + height * (full - config.min_learning_rate);
}

}  // namespace spillway::app
