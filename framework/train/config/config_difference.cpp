#include "train/config/config_difference.hpp"

#include "train/config/config_keys.hpp"

namespace spillway::app {

std::vector<std::string> differences(const TrainConfig& saved, const TrainConfig& now) {
  std::vector<std::string> found;
  for (const ConfigKey& key : config_keys()) {
    if (!key.changes_results) continue;
    const std::string then = value_text(key, saved);
    if (then == value_text(key, now)) continue;
    found.push_back(key.path() + ": " + then + " then, " + value_text(key, now) + " now");
  }
  const auto batches = [](const TrainConfig& config) {
    return config.parallel.data * config.parallel.expert * config.train.micro_batches;
  };
  const auto product = [&](const TrainConfig& config) {
    return std::to_string(config.parallel.data) + " x " + std::to_string(config.parallel.expert) +
           " x " + std::to_string(config.train.micro_batches) + " = " +
           std::to_string(batches(config));
  };
  if (batches(saved) != batches(now)) {
    found.push_back("parallel.data x parallel.expert x train.micro_batches: " + product(saved) +
                    " then, " + product(now) + " now");
  }
  return found;
}

}  // namespace spillway::app
