#include "train/run/train_run.hpp"
#include "train/run/train_setup.hpp"
#include "training/training.hpp"

namespace spillway::app {

int run_train(const TrainOptions& options) {
  const TrainConfig config = load_config(options.config.file, options.config.all());
  const auto world = open_world(config);
  return run_train(options, config, *world);
}

}  // namespace spillway::app
