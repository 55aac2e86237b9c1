/// Repeats calls; internal.
///
/// Intermediate results that later replays read are cached until the last of them has read them, up
/// to a bound, so that within a pass no call is repeated twice.
///
/// A replay takes from the book what it needs, under the session's lock; runs on what it took,
/// without that lock, while other threads may record calls, begin replays of other passes, or free
/// what the book holds; and gives back, under the lock again.
#pragma once

#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "torch/device/chain_runner.hpp"
#include "torch/graph/recipe_book.hpp"
#include "torch/replay/chain.hpp"

namespace spillway {

class Replay {
 public:
  /// The calls to repeat, in order, and the storages of values that they read but do not produce.
  struct Job {
    std::vector<CallId> calls;
    std::unordered_map<ValueId, c10::Storage> inputs;
    /// Values that must be available afterwards.
    std::set<ValueId> wanted;
    /// Values that are recomputed because their memory has moved; they are among `wanted`.
    std::vector<ValueId> moved;
  };

  /// Notes that replays will repeat these calls once. Under the session's lock.
  static void expect(RecipeBook& book, const std::vector<CallId>& calls);

  /// Takes what the job needs out of the book. Under the session's lock. Only one replay at a time.
  /// `chains`: consecutive elementwise calls will run as one kernel where possible.
  Replay(RecipeBook& book, const Job& job, bool chains);
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  /// Repeats the calls on the current stream: no gradients, no autocast, flags and random state as
  /// they were. Does not synchronise. Not under the session's lock: operators may run arbitrary
  /// code. Returns how many kernels repeated several calls.
  /// Errors: what autograd would throw if something that is read was changed in place since; and
  /// whatever the operators throw.
  int run(ChainRunner* chains = nullptr);

  /// Gives back results, in Value::recomputed, and what was taken and is still needed; also after
  /// run() has thrown. Under the session's lock. Returns what to free after unlocking.
  [[nodiscard]] std::vector<c10::Storage> finish(RecipeBook& book);

  /// Caches what the job computed for later replays, up to `bound` bytes in all; evicts the oldest
  /// beyond that, which are recomputed when needed. As finish().
  [[nodiscard]] static std::vector<c10::Storage> trim(RecipeBook& book, const Job& job,
                                                      std::size_t bound);

 private:
  friend class Repetition;
  friend class ChainRepetition;

  /// A value during the replay.
  struct State {
    c10::Storage storage;  // Null: not computed yet, or not needed any more.
    std::size_t bytes = 0;
    int uses = 0;          // Calls of this replay that still read it.
    int readers_left = 0;  // As in Value.
    int reads = 0;         // By how much this replay has lowered it.
    bool taken = false;    // Out of the book, or computed; else an input, which belongs to others.
    bool wanted = false;
    bool may_change = false;  // Shares memory with an owner who may have changed it since.
    bool copied = false;      // `storage` has what a weight was before it was written.

    [[nodiscard]] bool needed() const noexcept { return wanted || readers_left > 0 || uses > 0; }
    void read() noexcept {
      --readers_left;
      ++reads;
    }
    void set(c10::Storage result) {
      storage = std::move(result);
      taken = true;
      may_change = false;
    }
  };

  /// A call during the replay. What `call` points to does not change any more, except the members
  /// that are copied here.
  struct Repeated {
    CallId id = -1;
    const Call* call = nullptr;
    c10::SmallVector<Made, 2> makes;
    bool counted = false;  // Its inputs' readers_left count it, and no replay has repeated it yet.
    bool done = false;
    std::optional<ElementwiseCall> elementwise;  // In a group of several.
  };

  void add(RecipeBook& book, CallId id);
  void take(RecipeBook& book, const Job& job, ValueId id, State& state);

  std::vector<Repeated> calls_;
  std::vector<std::size_t> groups_;  // Numbers of consecutive calls that one kernel may repeat.
  std::unordered_map<ValueId, State> values_;
};

}  // namespace spillway
