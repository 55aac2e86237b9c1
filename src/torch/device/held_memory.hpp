/// Keeps memory readable that its owner may give back; internal.
#pragma once

#include <utility>

#include <c10/core/Storage.h>

namespace spillway {

/// As long as it lives, the memory that a storage on the CPU had when it was made is not handed out
/// again, even if the storage is resized or gets other memory. Threads: any.
class HeldMemory {
 public:
  HeldMemory() = default;
  /// Empty if the memory does not come from torch's allocator on the CPU, or was allocated before
  /// count_host_memory() was called: then nothing can keep it.
  explicit HeldMemory(const c10::Storage& storage);
  HeldMemory(HeldMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  HeldMemory& operator=(HeldMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~HeldMemory();

  [[nodiscard]] explicit operator bool() const noexcept { return data_ != nullptr; }

 private:
  void* data_ = nullptr;
};

}  // namespace spillway
