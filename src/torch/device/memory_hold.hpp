/// Keeps memory readable that its owner may give back; internal.
#pragma once

#include <utility>

#include <c10/core/Storage.h>

namespace spillway {

/// As long as it lives, the memory that a storage on the CPU had when it was made is not handed out
/// again, even if the storage is resized or gets other memory. Threads: any.
class MemoryHold {
 public:
  MemoryHold() = default;
  /// Empty if the memory does not come from torch's allocator on the CPU, or was allocated before
  /// count_host_memory() was called: then nothing can keep it.
  explicit MemoryHold(const c10::Storage& storage);
  MemoryHold(MemoryHold&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  MemoryHold& operator=(MemoryHold&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~MemoryHold();

  [[nodiscard]] explicit operator bool() const noexcept { return data_ != nullptr; }

 private:
  void* data_ = nullptr;
};

}  // namespace spillway
