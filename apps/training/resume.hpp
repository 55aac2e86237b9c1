/// A run's parameters and optimizer to and from a checkpoint.
#pragma once

#include "training/checkpoint.hpp"
#include "training/optimizer.hpp"

namespace spillway::app {

/// This rank's part: CheckpointWriter::write() of the optimizer's parameters and state.
void save(const CheckpointWriter& writer, int rank, const Optimizer& optimizer);

/// Gives the optimizer's parameters and its state the checkpoint's values. Other tensors of the
/// checkpoint, those of other ranks, are left alone.
/// Errors: as Checkpoint::read(); IoError if a tensor has another shape or type there. Nothing is
/// changed then.
void restore(const Checkpoint& checkpoint, Optimizer& optimizer);

}  // namespace spillway::app
