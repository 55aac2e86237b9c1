/// Builds the profile of one pass: what it saved, and when backward read it; internal. Called under
/// the session's lock.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spillway/plan/profile.hpp"
#include "torch/graph/recipe_book.hpp"
#include "torch/graph/storage_pin.hpp"

namespace spillway {

class FreedWeights;

/// The scopes of the operators that saved a buffer, each once.
[[nodiscard]] std::vector<std::string> saving_scopes(const BufferProfile& buffer);

/// Where a call ran.
struct CallLocation {
  std::string scope;
  bool in_forward = true;  // Of its pass: its backward had not begun.
};

class PassProfiler {
 public:
  /// Adds one saved tensor; returns its buffer's id in this pass. `value`: the value it holds, or
  /// -1; `save`: the operator that runs, and its scope.
  int save(const at::Tensor& tensor, FixedReason fixed, ValueId value, Save save,
           Signature signature);
  void unpacked(int buffer);
  /// The buffer is never moved: it has another owner when backward reads it, or is written later.
  void fix(int buffer, FixedReason reason);
  /// In the pass's book; -1: it has none.
  [[nodiscard]] ValueId value_of(int buffer) const {
    return values_[static_cast<std::size_t>(buffer)];
  }
  /// From `moment` on only autograd holds the buffer.
  void set_last_forward_use(int buffer, std::size_t moment);
  /// Other passes ran between its forward and its backward: buffers whose last forward use was
  /// noticed when backward began had it at the end of forward.
  void released_with_forward(const std::vector<Moment>& moments);
  /// How many calls had begun when the first tensor was saved.
  void first_save(int calls) { chunk_.calls_before_first_save = calls; }

  /// Notes which of the values from outside are still alive. `holds_some`: the session may hold
  /// some of them, which does not count.
  void begin_backward(const RecipeBook& book, bool holds_some);
  [[nodiscard]] bool had_backward() const noexcept { return !chunk_.unpack_order.empty(); }
  /// Nothing was saved, or finish() was called.
  [[nodiscard]] bool empty() const noexcept { return chunk_.sites.empty(); }
  /// What it has saved so far. Nothing after finish().
  [[nodiscard]] const ChunkProfile& saved() const noexcept { return chunk_; }
  /// Whether its buffers are as large as those of `other`, a pass of the same chunk.
  [[nodiscard]] bool has_sizes_of(const ChunkProfile& other) const;

  /// The finished profile of this pass. `pass`: its number in the book; `locations`: by call there;
  /// `moments`: with their times, up to the end; empty if the device could not tell them.
  /// `granularity`: of the device's allocator. What only a weight that is `freed` then could
  /// recompute is not recomputable.
  [[nodiscard]] ChunkProfile finish(int chunk, int pass, const RecipeBook& book,
                                    const std::vector<CallLocation>& locations,
                                    std::vector<Moment> moments, Bytes granularity,
                                    const FreedWeights& freed);

 private:
  [[nodiscard]] int find_or_add(const at::Tensor& tensor, FixedReason fixed, ValueId value,
                                const Save& save);
  void add_operators(int pass, const RecipeBook& book, const std::vector<CallLocation>& locations);
  void add_recipes(const RecipeBook& book);
  void exclude_freed(const FreedWeights& freed);
  /// Whether plans keep or offload it where it would be recomputed for an operator in `reader`:
  /// because it cannot be recomputed, or because it enters a layer.
  [[nodiscard]] bool starts_replays(const ValueProfile& value, const std::string& reader) const;
  [[nodiscard]] bool reads_freed(const BufferProfile& buffer, const FreedWeights& freed) const;

  struct Known {
    int buffer = 0;
    StoragePin pin;  // Keeps the address from being used again.
  };

  ChunkProfile chunk_;
  std::vector<ValueId> values_;                     // By buffer: what it holds.
  std::vector<Signature> signatures_;               // By operator: of its call.
  std::unordered_map<ValueId, int> value_numbers_;  // In the profile.
  std::unordered_map<ValueId, bool> persistent_;
  std::unordered_map<const c10::StorageImpl*, Known> known_;
  std::unordered_map<std::string, int> ordinals_;
};

}  // namespace spillway
