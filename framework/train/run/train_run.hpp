/// A training run from its first step to its tables and files; what `spillway train` does.
#pragma once

#include "spillway/comm/world.hpp"
#include "train/config/config.hpp"
#include "train/config/train_options.hpp"

namespace spillway::app {

/// Gives the exit code: 1 if bits differ, else 0. Rank 0 prints. With several ranks an exception of
/// one ends the job.
/// Ordering: collective over the world.
/// Threads:  in a Python process, without the interpreter's lock.
int run_train(const TrainOptions& options, const TrainConfig& config, World& world);

}  // namespace spillway::app
