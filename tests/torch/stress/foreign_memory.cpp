#include "foreign_memory.hpp"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "device.hpp"
#include "torch/support/resized_storage.hpp"

namespace spillway::testing {
namespace {

/// On the CPU not from torch, which counts what it allocates.
c10::DataPtr new_memory(std::size_t bytes) {
  if (on_cuda()) return c10::GetAllocator(device().type())->allocate(bytes);
  auto* const memory = new std::byte[bytes];
  return {memory, memory, [](void* made) { delete[] static_cast<std::byte*>(made); }, at::kCPU};
}

}  // namespace

struct Arena::Lease {
  std::shared_ptr<Arena> arena;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
};

c10::DataPtr Arena::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::vector<std::byte*>& free = free_[bytes];
  if (free.empty()) {
    memory_.push_back(new_memory(bytes + 64));
    auto* const begin = static_cast<std::byte*>(memory_.back().get());
    const std::size_t beyond = reinterpret_cast<std::uintptr_t>(begin) % 64;
    free.push_back(begin + (64 - beyond));
  }
  std::byte* const memory = free.back();
  free.pop_back();
  return {memory, new Lease{shared_from_this(), memory, bytes}, &Arena::give_back, device()};
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
  const auto key = on_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), key, type);
  impl->set_sizes_contiguous(sizes);
  return at::Tensor(std::move(impl));
}

void Arena::overwrite_free(std::size_t bytes) {
  const c10::DataPtr other = take(bytes);
  fill(other.get(), 0x7b, bytes);
}

EmptiedStorage::EmptiedStorage(const at::Tensor& tensor, std::shared_ptr<Arena> arena)
    : storage_(tensor.storage()), arena_(std::move(arena)), content_(storage_.nbytes()) {
  copy_to_host(content_.data(), storage_.data(), content_.size());
  c10::StorageImpl* const impl = storage_.unsafeGetStorageImpl();
  if (arena_ == nullptr) {
    resize_storage(storage_, 0);
    return;
  }
  impl->set_data_ptr_noswap(c10::DataPtr(nullptr, device()));
  impl->set_nbytes(0);
  arena_->overwrite_free(content_.size());
}

void EmptiedStorage::refill() {
  if (storage_.nbytes() != 0) return;
  c10::StorageImpl* const impl = storage_.unsafeGetStorageImpl();
  if (arena_ == nullptr) {
    resize_storage(storage_, content_.size());
  } else {
    impl->set_data_ptr_noswap(arena_->take(content_.size()));
    impl->set_nbytes(content_.size());
  }
  copy_from_host(impl->mutable_data(), content_.data(), content_.size());
}

GatheredWeight::GatheredWeight(at::Tensor content)
    : content_(std::move(content)), leaf_(at::empty_like(content_).set_requires_grad(true)) {
  release();
}

void GatheredWeight::gather() {
  if (leaf_.storage().nbytes() != 0) return;
  resize_storage(leaf_.storage(), content_.nbytes());
  const at::AutoDispatchBelowADInplaceOrView unseen;
  leaf_.copy_(content_);
}

void GatheredWeight::release() { resize_storage(leaf_.storage(), 0); }

void GatheredWeight::update() {
  const at::NoGradGuard guard;
  if (leaf_.grad().defined()) content_.add_(leaf_.grad().clamp(-1, 1), -0.01);
}

}  // namespace spillway::testing
