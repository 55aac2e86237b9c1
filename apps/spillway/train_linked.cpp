#include "training.hpp"
#include "training/train_run.hpp"
#include "training/train_setup.hpp"

namespace spillway::app {

int run_train(const TrainOptions& options) {
  const TrainConfig config = load_config(options.config.file, options.config.all());
  const auto world = open_world(config);
  return run_train(options, config, *world);
}

}  // namespace spillway::app
