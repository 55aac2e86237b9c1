/// The steps of a training run: progress, metrics, evaluations, checkpoints, and a clean end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "spillway/comm/world.hpp"
#include "train/checkpoint/digest.hpp"
#include "train/config/config.hpp"
#include "train/run/comparison.hpp"
#include "train/run/job.hpp"

namespace spillway::app {

/// How a run is made.
struct LoopOptions {
  std::string title;     ///< Of the progress bar.
  int kept = 0;          ///< The gradients of so many of the last steps are kept.
  int verify_every = 0;  ///< Steps; 0: never.
  bool trace = false;    ///< The last step is traced.
  /// Rules or plan let collectives be repeated: ranks that share tensors compare what they replay
  /// before each step.
  bool repeats_collectives = false;
  bool writes = true;  ///< Metrics and checkpoints, where the config asks for them.
};

struct LoopResult {
  TrainingRun run;
  int settled = 0;                   ///< After so many steps the plan was the one that it stayed.
  LossDigest losses;                 ///< Of all steps, those before a checkpoint included.
  int stopped_by = 0;                ///< The signal that ended it early; 0: none.
  std::string checkpoint;            ///< The last one that was written; empty: none.
  std::optional<double> evaluation;  ///< The last one's loss.
};

/// Goes on from the checkpoint that the config names, if any, to the config's last step.
/// Ordering: collective over the world. `session` may be null.
/// Errors: as Checkpoint; InvalidArgument if the checkpoint is of another run, with what differs.
[[nodiscard]] LoopResult run_steps(World& world, TrainingJob& job, Session* session,
                                   const TrainConfig& config, const LoopOptions& options);

/// Of all parameters of the model. Ordering: collective over the world.
/// Errors: InvalidArgument if ranks that hold the same parameter have diverged.
[[nodiscard]] std::uint64_t parameters_digest(World& world, const TrainingJob& job);

}  // namespace spillway::app
