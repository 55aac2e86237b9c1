/// Which samples a micro-batch has: pure functions, so that every layout and every resumed run sees
/// the same text.
#pragma once

#include <cstdint>

namespace spillway::app {

/// Who runs a micro-batch, and when.
struct BatchPosition {
  std::int64_t step = 0;         ///< From 0.
  std::int64_t micro_batch = 0;  ///< Of this data rank in the step.
  std::int64_t data_rank = 0;
};

/// How a step is divided.
struct BatchShape {
  std::int64_t micro_batches = 1;  ///< On each data rank.
  std::int64_t data = 1;           ///< Data ranks.
  std::int64_t size = 1;           ///< Samples of a micro-batch.
};

/// The first of the micro-batch's `size` consecutive samples:
///     ((step * micro_batches + micro_batch) * data + data_rank) * size
/// So a step has the same samples for any number of data ranks with the same data * micro_batches.
[[nodiscard]] constexpr std::uint64_t first_sample(const BatchShape& shape,
                                                   const BatchPosition& position) noexcept {
  const std::int64_t batch =
      (position.step * shape.micro_batches + position.micro_batch) * shape.data +
      position.data_rank;
  return static_cast<std::uint64_t>(batch * shape.size);
}

/// Where `index` goes in a shuffle of 0, 1, ..., count - 1; another one for each `key`. For a fixed
/// count and key every number comes once. Precondition: index < count.
[[nodiscard]] std::uint64_t shuffled(std::uint64_t index, std::uint64_t count, std::uint64_t key);

/// Numbers made of two others, spread over all 64 bits.
[[nodiscard]] std::uint64_t mixed(std::uint64_t a, std::uint64_t b) noexcept;

}  // namespace spillway::app
