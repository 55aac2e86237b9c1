/// From a config to what training needs: the device of this rank, and the options of its session.
#pragma once

#include <memory>

#include "spillway/comm/world.hpp"
#include "spillway/torch/session.hpp"
#include "train/config/config.hpp"

namespace spillway::app {

/// Where several ranks compute.
enum class Placement {
  kHost,
  kSharedGpu,  ///< As configured, with fewer GPUs than ranks of a machine: NCCL refuses that.
  kOwnGpu,
};

/// Of `ranks` ranks. Looks at this machine's GPUs, and at what launchers say of its ranks.
[[nodiscard]] Placement placement_of(const TrainConfig& config, int ranks);

/// How long ranks wait for each other.
[[nodiscard]] WorldOptions world_options(const TrainConfig& config);

/// The ranks of this job, as mpirun or srun started them, or one. With several and a GPU for each,
/// they communicate over NCCL.
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
