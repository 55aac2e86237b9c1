/// What one recorded pass saved, and when it was wanted again; internal. Called under the session's
/// lock.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "recipe_book.hpp"
#include "spillway/plan/profile.hpp"
#include "storage_pin.hpp"
#include "torch_device.hpp"

namespace spillway {

/// When a call ran, and where.
struct CallTimes {
  std::string scope;
  TimeMark begin;
  TimeMark end;
};

class PassRecord {
 public:
  /// Notes one saved tensor; gives its buffer's id in this pass. `value`: what it holds, or -1;
  /// `saver`: the operator that runs.
  int save(const at::Tensor& tensor, FixedReason fixed, ValueId value, const std::string& saver);
  void unpacked(int buffer);
  void released(int buffer);
  /// It stays where it is: somebody else holds it when backward wants it, or writes into it.
  void fix(int buffer, FixedReason reason);
  /// How many calls had begun when the first tensor was saved.
  void first_save(int calls) { chunk_.calls_before_first_save = calls; }

  void begin_forward(const TimeMark& mark) { forward_begin_ = mark; }
  /// Also looks which of the values that came from outside are still there.
  void begin_backward(const TimeMark& mark, const RecipeBook& book);
  void end_backward(const TimeMark& mark) { backward_end_ = mark; }
  [[nodiscard]] bool had_backward() const noexcept { return !chunk_.unpack_order.empty(); }
  [[nodiscard]] bool empty() const noexcept { return chunk_.sites.empty(); }

  /// The finished profile of this pass. Blocks until its operators have run.
  /// `pass`: its number in the book.
  [[nodiscard]] ChunkProfile finish(int chunk, int pass, const RecipeBook& book,
                                    const std::vector<CallTimes>& times, TorchDevice& device);

 private:
  [[nodiscard]] int find_or_add(const at::Tensor& tensor, FixedReason fixed, ValueId value,
                                const std::string& saver);
  void add_operators(int pass, const RecipeBook& book, const std::vector<CallTimes>& times,
                     TorchDevice& device);
  void add_recipes(const RecipeBook& book);

  struct Known {
    int buffer = 0;
    StoragePin pin;  // Keeps the address from being used again.
  };

  ChunkProfile chunk_;
  std::vector<ValueId> values_;                     // By buffer: what it holds.
  std::unordered_map<ValueId, int> value_numbers_;  // In the profile.
  std::unordered_map<ValueId, bool> lasting_;
  std::unordered_map<const c10::StorageImpl*, Known> known_;
  std::unordered_map<std::string, int> ordinals_;
  int releases_ = 0;
  TimeMark forward_begin_;
  TimeMark forward_end_;
  TimeMark backward_end_;
};

/// Finds the repeated layers by scopes ("layers.0", "layers.1", ...) and numbers what lies in them.
/// `wanted`: the scope of their list; empty: the longest one.
void find_layers(Profile& profile, const std::string& wanted);

}  // namespace spillway
