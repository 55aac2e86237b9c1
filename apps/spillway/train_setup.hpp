/// From a config to what training needs: the device of this rank, and what its session is told.
#pragma once

#include <memory>

#include "spillway/parallel/world.hpp"
#include "spillway/torch/session.hpp"
#include "training/config.hpp"

namespace spillway::app {

/// The ranks of this job. With several and a GPU for each, they speak over NCCL.
[[nodiscard]] std::unique_ptr<World> open_world(const TrainConfig& config);

/// The device of this rank.
/// Errors: InvalidArgument if there is no such GPU.
[[nodiscard]] at::Device device_of(const TrainConfig& config, const World& world);

/// `path` with the rank in place of every "{rank}".
[[nodiscard]] std::string with_rank(std::string path, int rank);

/// Files that are wrong are said at once. In memory.plan, "{rank}" stands for the rank.
/// Errors: as load_rules() and load_plan().
[[nodiscard]] SessionOptions session_options(const TrainConfig& config, at::Device device,
                                             int rank);

}  // namespace spillway::app
