/// Numbers for weights that were not registered, such as those that FSDP gathers; internal.
///
/// A weight keeps the number of its first use in a recording step, so that signatures tell equal
/// layers apart although one of them is left out. A weight that is not known gets the number of its
/// first use in the step among such weights: what a program makes in each step has the same number
/// in all of them. Under the session's lock.
#pragma once

#include <cstdint>
#include <unordered_map>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

namespace spillway {

class WeightNumbers {
 public:
  void begin_step(bool records);

  /// `weight`: what weight_of() returned.
  [[nodiscard]] std::uint64_t of(const at::Tensor& weight);

 private:
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Entry {
    Weak weight;  // It pins the address.
    std::uint64_t number = 0;
  };
  using Numbers = std::unordered_map<const c10::TensorImpl*, Entry>;

  bool records_ = false;
  std::uint64_t last_ = 0;  // Given to one of recorded_.
  Numbers recorded_;
  Numbers unknown_;  // Of this step.
};

}  // namespace spillway
