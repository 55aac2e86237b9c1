/// Repeats calls; internal.
///
/// Results that later replays read are kept until the last of them has read them, so that within a
/// pass no call is repeated twice, as long as they stay below a bound.
#pragma once

#include <unordered_map>
#include <vector>

#include "torch/device/chain_runner.hpp"
#include "torch/graph/recipe_book.hpp"

namespace spillway {

class Replay {
 public:
  /// What to repeat, in order, and where the values are that these calls read and do not make.
  struct Job {
    std::vector<CallId> calls;
    std::unordered_map<ValueId, c10::Storage> inputs;
    /// What must still be there afterwards, whoever has read it.
    std::unordered_map<ValueId, bool> wanted;
  };

  /// Notes that replays will want these calls once. Under the session's lock.
  static void expect(RecipeBook& book, const std::vector<CallId>& calls);

  /// Repeats the calls on the current stream: no gradients, no autocast, flags and random state as
  /// they were. Results are in Value::recomputed. Waits for nothing.
  /// Not under the session's lock: operators may run anybody's code. Only one replay of a book at a
  /// time. With `chains` elementwise calls that follow each other run as one kernel, where it can.
  /// Returns how many kernels it made of them.
  /// Errors: what autograd would throw if something that is read was changed in place since; and
  /// whatever the operators throw.
  static int run(RecipeBook& book, const Job& job, ChainRunner* chains = nullptr);

  /// What the job left for later replays stays, up to `bound` bytes in all; beyond that the oldest
  /// go, to be made again if they are wanted. When run() may be called.
  static void trim(RecipeBook& book, const Job& job, std::size_t bound);
};

}  // namespace spillway
