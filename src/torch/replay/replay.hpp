/// Repeats calls; internal.
///
/// Intermediate results that later replays read are cached until the last of them has read them, up
/// to a bound, so that within a pass no call is repeated twice.
#pragma once

#include <unordered_map>
#include <vector>

#include "torch/device/chain_runner.hpp"
#include "torch/graph/recipe_book.hpp"

namespace spillway {

class Replay {
 public:
  /// The calls to repeat, in order, and the storages of values that they read but do not produce.
  struct Job {
    std::vector<CallId> calls;
    std::unordered_map<ValueId, c10::Storage> inputs;
    /// Values that must be available afterwards.
    std::unordered_map<ValueId, bool> wanted;
  };

  /// Notes that replays will repeat these calls once. Under the session's lock.
  static void expect(RecipeBook& book, const std::vector<CallId>& calls);

  /// Repeats the calls on the current stream: no gradients, no autocast, flags and random state as
  /// they were. Results are in Value::recomputed. Does not synchronise.
  /// Not under the session's lock: operators may run arbitrary code. Only one replay of a book at a
  /// time. With `chains`, consecutive elementwise calls run as one kernel where possible.
  /// Returns the number of such kernels.
  /// Errors: what autograd would throw if something that is read was changed in place since; and
  /// whatever the operators throw.
  static int run(RecipeBook& book, const Job& job, ChainRunner* chains = nullptr);

  /// Caches what the job computed for later replays, up to `bound` bytes in all; evicts the oldest
  /// beyond that, which are recomputed when needed. When run() may be called.
  static void trim(RecipeBook& book, const Job& job, std::size_t bound);
};

}  // namespace spillway
