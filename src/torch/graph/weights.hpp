/// Which tensors are weights; internal.
///
/// A weight belongs to its owner, who may replace its memory at any time: gather it, free it,
/// gather it again. So it is never moved, and whoever reads it later reads the memory it has then.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <c10/util/python_stub.h>

#include "torch/graph/tensor_window.hpp"

namespace spillway {

/// What `tensor` is, or is a view of, if that is a leaf that requires gradients or a
/// torch.nn.Parameter, frozen ones included; else undefined. `tensor` is as autograd saves it or as
/// an operator gets it, with its history. Makes no Python object and takes no lock.
[[nodiscard]] at::Tensor weight_of(const at::Tensor& tensor);

/// Whether a tensor is a torch.nn.Parameter. Always false in programs without Python.
[[nodiscard]] bool is_python_parameter(const at::Tensor& tensor);

/// A weight as an operator read it. Finds the same elements again in the memory that the weight has
/// later. Keeps nothing alive: a graph holds the leaves that it leads to.
class WeightView {
 public:
  /// `weight`: what weight_of() returned.
  explicit WeightView(const at::Tensor& weight)
      : weight_(weight.getIntrusivePtr()), before_(weight) {}

  /// What `window` was on the weight when this was made, on the memory that the weight has now.
  /// Undefined if the weight is gone, has other sizes now, or no memory, as while it is not
  /// gathered.
  [[nodiscard]] at::Tensor now(const TensorWindow& window) const;

  using Weight = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  /// The weight, with memory or without; null if it is gone.
  [[nodiscard]] Weight lock() const noexcept { return weight_.lock(); }
  /// Whether it has its sizes, and memory for them. `weight`: from lock(), not null.
  [[nodiscard]] bool has_memory(const Weight& weight) const;

 private:
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> weight_;
  TensorWindow before_;
};

/// Sets how to recognise the Python object of a Parameter; for the whole process.
using IsParameter = bool (*)(PyObject* object);
void set_parameter_test(IsParameter test) noexcept;

}  // namespace spillway
