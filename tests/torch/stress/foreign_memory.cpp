#include "foreign_memory.hpp"

#include <cstring>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/Resize.h>

namespace spillway::testing {

struct Arena::Lease {
  std::shared_ptr<Arena> arena;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
};

c10::DataPtr Arena::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::vector<std::byte*>& free = free_[bytes];
  if (free.empty()) {
    memory_.push_back(std::make_unique<std::byte[]>(bytes + 64));
    auto* const begin = memory_.back().get();
    const std::size_t beyond = reinterpret_cast<std::uintptr_t>(begin) % 64;
    free.push_back(begin + (64 - beyond));
  }
  std::byte* const memory = free.back();
  free.pop_back();
  return {memory, new Lease{shared_from_this(), memory, bytes}, &Arena::give_back, at::kCPU};
}

void Arena::give_back(void* context) {
  const std::unique_ptr<Lease> lease(static_cast<Lease*>(context));
  const std::lock_guard lock(lease->arena->mutex_);
  lease->arena->free_[lease->bytes].push_back(lease->memory);
}

at::Tensor Arena::empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  const auto type = c10::scalarTypeToTypeMeta(dtype);
  const std::size_t bytes =
      static_cast<std::size_t>(c10::multiply_integers(sizes)) * type.itemsize();
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, take(bytes), nullptr, false);
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), c10::DispatchKey::CPU, type);
  impl->set_sizes_contiguous(sizes);
  return at::Tensor(std::move(impl));
}

void Arena::overwrite_free(std::size_t bytes) {
  const c10::DataPtr other = take(bytes);
  std::memset(other.get(), 0x7b, bytes);
}

EmptiedStorage::EmptiedStorage(const at::Tensor& tensor, std::shared_ptr<Arena> arena)
    : storage_(tensor.storage()), arena_(std::move(arena)), content_(storage_.nbytes()) {
  std::memcpy(content_.data(), storage_.data(), content_.size());
  c10::StorageImpl* const impl = storage_.unsafeGetStorageImpl();
  if (arena_ == nullptr) {
    at::native::resize_bytes_cpu(impl, 0);
    return;
  }
  impl->set_data_ptr_noswap(c10::DataPtr(nullptr, at::kCPU));
  impl->set_nbytes(0);
  arena_->overwrite_free(content_.size());
}

void EmptiedStorage::refill() {
  if (storage_.nbytes() != 0) return;
  c10::StorageImpl* const impl = storage_.unsafeGetStorageImpl();
  if (arena_ == nullptr) {
    at::native::resize_bytes_cpu(impl, content_.size());
  } else {
    impl->set_data_ptr_noswap(arena_->take(content_.size()));
    impl->set_nbytes(content_.size());
  }
  std::memcpy(impl->mutable_data(), content_.data(), content_.size());
}

GatheredWeight::GatheredWeight(at::Tensor content)
    : content_(std::move(content)), leaf_(at::empty_like(content_).set_requires_grad(true)) {
  release();
}

void GatheredWeight::gather() {
  if (leaf_.storage().nbytes() != 0) return;
  at::native::resize_bytes_cpu(leaf_.storage().unsafeGetStorageImpl(), content_.nbytes());
  std::memcpy(leaf_.storage().mutable_data(), content_.const_data_ptr(), content_.nbytes());
}

void GatheredWeight::release() {
  at::native::resize_bytes_cpu(leaf_.storage().unsafeGetStorageImpl(), 0);
}

void GatheredWeight::update() {
  const at::NoGradGuard guard;
  if (leaf_.grad().defined()) content_.add_(leaf_.grad().clamp(-1, 1), -0.01);
}

}  // namespace spillway::testing
