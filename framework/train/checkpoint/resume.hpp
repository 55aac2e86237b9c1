/// A run's parameters and optimizer to and from a checkpoint.
#pragma once

#include <functional>
#include <string>

#include "train/checkpoint/checkpoint.hpp"
#include "train/model/optimizer.hpp"

namespace spillway::app {

/// This rank's part: CheckpointWriter::write() of the optimizer's parameters and state.
void save(const CheckpointWriter& writer, int rank, const Optimizer& optimizer);

/// What a rank has of a whole tensor of that name.
using TakePart = std::function<at::Tensor(const std::string& name, const at::Tensor& whole)>;

/// Gives the optimizer's parameters and its state the checkpoint's values, or the parts of them
/// that are this rank's. Other tensors of the checkpoint, those of other ranks, are ignored.
/// Errors: as Checkpoint::read(); IoError if a tensor has another shape or type there. Nothing is
/// changed then.
void restore(const Checkpoint& checkpoint, Optimizer& optimizer, const TakePart& part = {});

}  // namespace spillway::app
