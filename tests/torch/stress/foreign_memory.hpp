/// Storages whose memory comes and goes while autograd has saved them, as frameworks do it: resized
/// to 0 and back, or taken from a library's own memory.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

namespace spillway::testing {

/// Memory of a library of its own: what was freed last is handed out first, so that other data soon
/// has the same address. Threads: any. Lives as long as any memory of it.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  [[nodiscard]] c10::DataPtr take(std::size_t bytes);
  /// A tensor without history on memory of this arena.
  [[nodiscard]] at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype);
  /// Other data has free memory of this size for a moment.
  void overwrite_free(std::size_t bytes);

 private:
  struct Lease;
  static void give_back(void* context);

  std::mutex mutex_;
  std::vector<c10::DataPtr> memory_;
  std::map<std::size_t, std::vector<std::byte*>> free_;
};

/// A storage that has no memory until it is refilled, with its old content.
class EmptiedStorage {
 public:
  /// Frees the memory at once: resizes to 0, or, for a storage of `arena`, gives it back there.
  EmptiedStorage(const at::Tensor& tensor, std::shared_ptr<Arena> arena);

  /// Does nothing if it is filled. Autograd does not see the write.
  void refill();

 private:
  c10::Storage storage_;
  std::shared_ptr<Arena> arena_;
  std::vector<std::byte> content_;
};

/// A leaf whose memory exists only around its uses, as FSDP2's gathered parameters.
class GatheredWeight {
 public:
  explicit GatheredWeight(at::Tensor content);

  [[nodiscard]] const at::Tensor& leaf() const { return leaf_; }
  void gather();
  void release();
  /// Gradient descent on the content.
  void update();

 private:
  at::Tensor content_;
  at::Tensor leaf_;
};

}  // namespace spillway::testing
