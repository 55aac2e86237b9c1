#include "torch/graph/weights.hpp"

#include <atomic>

#include <ATen/EmptyTensor.h>
#include <torch/csrc/autograd/variable.h>

namespace spillway {
namespace {

std::atomic<IsParameter> g_is_parameter = nullptr;

bool is_weight(const at::Tensor& tensor) {
  // Not Tensor::is_leaf(), which may compute the history of a view.
  const torch::autograd::AutogradMeta* const meta =
      torch::autograd::impl::get_autograd_meta(tensor);
  if (meta != nullptr && meta->requires_grad_ && meta->grad_fn_ == nullptr) return true;
  return is_python_parameter(tensor);
}

}  // namespace

void set_parameter_test(IsParameter test) noexcept { g_is_parameter = test; }

bool is_python_parameter(const at::Tensor& tensor) {
  const IsParameter test = g_is_parameter.load(std::memory_order_relaxed);
  if (test == nullptr) return false;
  PyObject* const object = tensor.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj();
  return object != nullptr && test(object);
}

at::Tensor weight_of(const at::Tensor& tensor) {
  const torch::autograd::DifferentiableViewMeta* const view =
      torch::autograd::impl::get_view_autograd_meta(tensor);
  // A view of a leaf has requires_grad_ unset and no grad_fn_ until somebody asks for it.
  if (view != nullptr && view->has_bw_view()) {
    const at::Tensor& base = view->get_backward_view().base_;
    return is_weight(base) ? base : at::Tensor();
  }
  return is_weight(tensor) ? tensor : at::Tensor();
}

bool WeightView::has_memory(const Weight& weight) const {
  const bool same = weight->dtype() == c10::scalarTypeToTypeMeta(before_.dtype()) &&
                    weight->sizes() == before_.sizes() && weight->strides() == before_.strides();
  if (!same || weight->storage().data() == nullptr) return false;
  return at::detail::computeStorageNbytes(
             weight->sizes(), weight->strides(), weight->dtype().itemsize(),
             static_cast<std::size_t>(weight->storage_offset())) <= weight->storage().nbytes();
}

at::Tensor WeightView::now(const TensorWindow& window) const {
  const auto alive = weight_.lock();
  if (!alive) return {};
  if (!has_memory(alive)) return {};
  const c10::Storage& storage = alive->storage();
  at::Tensor tensor = window.on(storage, alive->storage_offset() - before_.offset());
  const std::size_t needed =
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.dtype().itemsize(),
                                       static_cast<std::size_t>(tensor.storage_offset()));
  return needed <= storage.nbytes() ? tensor : at::Tensor();
}

}  // namespace spillway
