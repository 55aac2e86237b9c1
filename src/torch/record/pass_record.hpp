/// What one recorded pass saved, and when it was wanted again; internal. Called under the session's
/// lock.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spillway/plan/profile.hpp"
#include "torch/graph/recipe_book.hpp"
#include "torch/graph/storage_pin.hpp"

namespace spillway {

/// Where a call ran.
struct CallLocation {
  std::string scope;
  bool in_forward = true;  // Of its pass: its backward had not begun.
};

class PassRecord {
 public:
  /// Notes one saved tensor; gives its buffer's id in this pass. `value`: what it holds, or -1;
  /// `saver`: the operator that runs.
  int save(const at::Tensor& tensor, FixedReason fixed, ValueId value, const std::string& saver);
  void unpacked(int buffer);
  /// It stays where it is: somebody else holds it when backward wants it, or writes into it.
  void fix(int buffer, FixedReason reason);
  /// From `moment` on only autograd holds it.
  void last_forward_use(int buffer, std::size_t moment);
  /// Other passes ran between its forward and its backward: what the model was seen to have let go
  /// when backward began, it let go when forward was over.
  void released_with_forward(const std::vector<Moment>& moments);
  /// How many calls had begun when the first tensor was saved.
  void first_save(int calls) { chunk_.calls_before_first_save = calls; }

  /// Looks which of the values that came from outside are still there.
  void begin_backward(const RecipeBook& book);
  [[nodiscard]] bool had_backward() const noexcept { return !chunk_.unpack_order.empty(); }
  /// Nothing was saved, or it is finished.
  [[nodiscard]] bool empty() const noexcept { return chunk_.sites.empty(); }
  /// Whether its buffers are as large as those of `other`, a pass of the same chunk.
  [[nodiscard]] bool has_sizes_of(const ChunkProfile& other) const;

  /// The finished profile of this pass. `pass`: its number in the book; `places`: by call there;
  /// `moments`: with their times, up to the end; empty if the device could not tell them.
  /// `granularity`: of the device's allocator.
  [[nodiscard]] ChunkProfile finish(int chunk, int pass, const RecipeBook& book,
                                    const std::vector<CallLocation>& places,
                                    std::vector<Moment> moments, Bytes granularity);

 private:
  [[nodiscard]] int find_or_add(const at::Tensor& tensor, FixedReason fixed, ValueId value,
                                const std::string& saver);
  void add_operators(int pass, const RecipeBook& book, const std::vector<CallLocation>& places);
  void add_recipes(const RecipeBook& book);

  struct Known {
    int buffer = 0;
    StoragePin pin;  // Keeps the address from being used again.
  };

  ChunkProfile chunk_;
  std::vector<ValueId> values_;                     // By buffer: what it holds.
  std::unordered_map<ValueId, int> value_numbers_;  // In the profile.
  std::unordered_map<ValueId, bool> persistent_;
  std::unordered_map<const c10::StorageImpl*, Known> known_;
  std::unordered_map<std::string, int> ordinals_;
};

}  // namespace spillway
