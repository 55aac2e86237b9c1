/// Memory that replays would start from, and that its owner freed or replaced after its value had
/// been computed; internal. Under the session's lock.
///
/// What such a value was is computed again, by calls that no verification step may have repeated.
/// The owner is the witness: before backward reads the memory, it has put the content back. Both
/// must have the same bits, or the gradients of the step are not to be trusted.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>

#include "torch/graph/recipe_book.hpp"

namespace spillway {

class MovedRoots {
 public:
  /// Whether memory of values with this signature was found to move, in any step so far: no replay
  /// starts from it again.
  [[nodiscard]] bool contains(Signature value) const { return known_.contains(value); }
  [[nodiscard]] bool empty() const noexcept { return known_.empty(); }
  void add(Signature value) { known_.insert(value); }

  /// A value that was recomputed in place of its memory, and what replays read of it.
  struct Recomputed {
    StoragePin root;
    c10::Storage storage;
    std::vector<at::Tensor> read;  // On `storage`.
  };
  void expect_equal(Recomputed value) { open_.push_back(std::move(value)); }

  /// Compares those whose memory has come back: queued on the current stream. Returns what to free
  /// after unlocking.
  [[nodiscard]] std::vector<c10::Storage> compare_present();

  /// At the end of a step. Waits for the comparisons, and returns how many values differ from what
  /// their owners put back, or were never put back. Clears them. `cut_short`: an exception ends the
  /// step, so owners may not have come to that.
  [[nodiscard]] std::size_t count_different(bool cut_short);

 private:
  std::unordered_set<Signature> known_;
  std::vector<Recomputed> open_;     // Not compared yet.
  std::vector<at::Tensor> differs_;  // One bool on the device each.
};

/// Whether the memory of a value's storage, which is alive, is not where the value was computed.
[[nodiscard]] bool has_moved(const Value& value, const c10::StorageImpl& storage);

}  // namespace spillway
