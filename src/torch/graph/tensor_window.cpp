#include "torch/graph/tensor_window.hpp"

#include <c10/core/DispatchKeySet.h>
#include <c10/core/TensorImpl.h>

namespace spillway {
namespace {

/// Keys that an ordinary tensor may have; any other (sparse, quantised, a Python subclass, a lazy
/// conjugate, a functional transform) means that it is more than storage, sizes and strides.
const c10::DispatchKeySet& ordinary_keys() {
  static const c10::DispatchKeySet kKeys =
      c10::DispatchKeySet(
          {c10::DispatchKey::CPU, c10::DispatchKey::CUDA, c10::DispatchKey::ADInplaceOrView}) |
      c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset;
  return kKeys;
}

}  // namespace

bool is_ordinary(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != c10::kStrided || tensor.is_inference()) return false;
  // Removing keys keeps the bits that name the backend.
  const std::uint64_t others = (tensor.key_set() - ordinary_keys()).raw_repr();
  return (others & ~std::uint64_t{c10::full_backend_mask}) == 0 && tensor.has_storage() &&
         !tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

at::Tensor without_history(const at::Tensor& tensor) {
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (!is_ordinary(tensor)) return tensor.detach();
  return at::Tensor(impl->shallow_copy_and_detach(impl->version_counter(), false));
}

TensorWindow::TensorWindow(const at::Tensor& tensor)
    : dtype_(tensor.dtype()),
      sizes_(tensor.sizes().begin(), tensor.sizes().end()),
      strides_(tensor.strides().begin(), tensor.strides().end()),
      offset_(tensor.storage_offset()),
      keys_(tensor.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU),
      device_(tensor.device()),
      version_(tensor.unsafeGetTensorImpl()->version_counter()),
      saved_version_(version_.current_version()) {}

at::Tensor TensorWindow::on(const c10::Storage& storage, std::int64_t shift) const {
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storage), keys_, dtype_);
  impl->set_sizes_and_strides(sizes_, strides_, offset_ + shift);
  return at::Tensor(std::move(impl));
}

bool TensorWindow::is_contiguous() const {
  std::int64_t wanted = 1;
  for (std::size_t i = sizes_.size(); i-- > 0;) {
    if (sizes_[i] != 1 && strides_[i] != wanted) return false;
    wanted *= sizes_[i];
  }
  return true;
}

at::Tensor TensorWindow::without_memory() const {
  return on({c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, device_)});
}

void TensorWindow::require_unmodified() const {
  TORCH_CHECK(
      version_.current_version() == saved_version_,
      "one of the variables needed for gradient computation has been modified by an inplace "
      "operation: [",
      dtype_.name(), " ", at::IntArrayRef(sizes_), "] is at version ", version_.current_version(),
      "; expected version ", saved_version_,
      " instead. Hint: enable anomaly detection to find the operation that failed to "
      "compute its gradient, with torch.autograd.set_detect_anomaly(True).");
}

}  // namespace spillway
