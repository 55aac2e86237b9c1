/// Samples as tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "train/data/corpus.hpp"
#include "train/data/sample_order.hpp"

namespace spillway::app {

struct Batch {
  at::Tensor tokens;   ///< [size, tokens], 64-bit whole numbers.
  at::Tensor targets;  ///< What comes after each of them; same shape.
};

/// `count` samples from `first` on, of `tokens` tokens each, on `device`. Copies to a GPU are made
/// on the current stream and not waited for.
/// Errors: as Corpus::read().
[[nodiscard]] Batch read_batch(const Corpus& corpus, std::uint64_t first, std::int64_t count,
                               std::int64_t tokens, at::Device device);

}  // namespace spillway::app
