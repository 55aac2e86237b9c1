/// What one recorded pass saved, and when it was wanted again; internal. Called under the session's
/// lock.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "op_recorder.hpp"
#include "spillway/plan/profile.hpp"
#include "storage_pin.hpp"
#include "torch_device.hpp"

namespace spillway {

class PassRecord {
 public:
  /// Notes one saved tensor; gives its buffer's id in this pass.
  int save(const at::Tensor& tensor, FixedReason fixed, const OpRecorder& operators);
  void unpacked(int buffer);
  void released(int buffer);
  /// Somebody else holds the buffer when backward wants it: moving it frees nothing.
  void held_by_caller(int buffer);

  void begin_forward(const TimeMark& mark) { forward_begin_ = mark; }
  void begin_backward(const TimeMark& mark) { forward_end_ = mark; }
  void end_backward(const TimeMark& mark) { backward_end_ = mark; }
  [[nodiscard]] bool had_backward() const noexcept { return !chunk_.unpack_order.empty(); }
  [[nodiscard]] bool empty() const noexcept { return chunk_.sites.empty(); }

  /// The finished profile of this pass. Blocks until its operators have run.
  [[nodiscard]] ChunkProfile finish(int chunk, const OpRecorder& operators, TorchDevice& device);

 private:
  [[nodiscard]] int find_or_add(const at::Tensor& tensor, FixedReason fixed,
                                const OpRecorder& operators);

  struct Known {
    int buffer = 0;
    StoragePin pin;  // Keeps the address from being used again.
  };

  ChunkProfile chunk_;
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
