/// Sums gradients over the ranks that hold copies of the weights, while backward still runs.
///
/// Gradients live in buckets: contiguous memory of which each parameter's grad() is a window, so
/// that nothing is copied. When backward has added the last gradient of a bucket, its all-reduce
/// starts. Buckets start in one order, whatever order backward takes, so that all ranks agree.
///
/// Ordering: arm() before the last backward of a chunk, flush() after it; finish() at the end.
/// Lifetime: parameters keep their gradients after this is gone.
/// Threads:  hooks run on autograd's threads, one at a time; all else on one thread.
#pragma once

#include <memory>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/groups/group.hpp"
#include "spillway/pipeline/pipeline_layer.hpp"

namespace spillway {

class GradientBuckets {
 public:
  /// Gives every parameter a gradient of zeros. Buckets hold about `bucket` bytes, of parameters
  /// of one chunk and one type, from the last one to the first, as backward meets them.
  GradientBuckets(const std::vector<StageParameter>& parameters, Group group, Bytes bucket);
  GradientBuckets(GradientBuckets&&) noexcept = default;
  GradientBuckets& operator=(GradientBuckets&&) = delete;
  ~GradientBuckets();

  /// Sets all gradients to zero.
  void zero();
  /// The next gradients that the chunk's parameters get are the last ones of this step.
  void arm(int chunk);
  /// Starts what the chunk's backward left: buckets with parameters that got no gradient.
  void flush(int chunk);
  /// Returns when all sums are there (on CUDA: for the current stream).
  void finish();

  [[nodiscard]] int count() const noexcept;

  class State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace spillway
