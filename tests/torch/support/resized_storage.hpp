/// Storages whose memory is given back and taken again, as frameworks do it; autograd does not see
/// it.
#pragma once

#include <cstddef>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <c10/core/Allocator.h>

namespace spillway::testing {

/// As UntypedStorage.resize_() of Python. On a device other than the CPU the content is lost.
inline void resize_storage(const c10::Storage& storage, std::size_t bytes) {
  c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
  if (storage.device_type() == at::kCPU) return at::native::resize_bytes_cpu(impl, bytes);
  c10::DataPtr data(nullptr, impl->device());
  if (bytes != 0) data = impl->allocator()->allocate(bytes);
  impl->set_data_ptr_noswap(std::move(data));
  impl->set_nbytes(bytes);
}

}  // namespace spillway::testing
