#include "torch/support/reusing_allocator.hpp"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

namespace spillway::testing {
namespace {

/// As wide as torch's alignment.
struct alignas(64) Header {
  std::size_t bytes = 0;
};

class ReusingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &give_back, c10::Device(c10::kCPU)};
    const std::lock_guard lock(mutex_);
    std::byte* data = take_free(bytes);
    if (data == nullptr) {
      void* const block = std::aligned_alloc(alignof(Header), sizeof(Header) + rounded(bytes));
      TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "no ", bytes, " bytes for a test");
      data = reinterpret_cast<std::byte*>(new (block) Header{bytes} + 1);  // NOLINT
    }
    return {data, data, &give_back, c10::Device(c10::kCPU)};
  }

  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &give_back; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  void restart(Reuse reuse, std::uint64_t seed) {
    const std::lock_guard lock(mutex_);
    reuse_ = reuse;
    random_.seed(seed);
    for (auto& [bytes, blocks] : free_) {
      for (std::byte* const each : blocks) std::free(&header_of(each));
    }
    free_.clear();
  }

  static ReusingAllocator& instance() {
    // Never destroyed: storages free their memory until the very end of the process.
    static auto& allocator = *new ReusingAllocator;
    return allocator;
  }

 private:
  static std::size_t rounded(std::size_t bytes) {
    return (bytes + sizeof(Header) - 1) / sizeof(Header) * sizeof(Header);
  }

  static Header& header_of(std::byte* data) {
    return *std::launder(reinterpret_cast<Header*>(data - sizeof(Header)));  // NOLINT
  }

  /// Null: a new block is due.
  std::byte* take_free(std::size_t bytes) {
    std::vector<std::byte*>& blocks = free_[bytes];
    std::size_t taken = 0;
    switch (reuse_) {
      case Reuse::kNever:
        return nullptr;
      case Reuse::kLast:
        if (blocks.empty()) return nullptr;
        taken = blocks.size() - 1;
        break;
      case Reuse::kRandomly:
        taken = random_() % (blocks.size() + 1);
        if (taken == blocks.size()) return nullptr;
        break;
    }
    std::byte* const data = blocks[taken];
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(taken));
    return data;
  }

  static void give_back(void* memory) {
    if (memory == nullptr) return;
    auto* const data = static_cast<std::byte*>(memory);
    const std::size_t bytes = header_of(data).bytes;
    // Who still reads it does not find what was there.
    std::memset(data, 0x5a, bytes);
    ReusingAllocator& allocator = instance();
    const std::lock_guard lock(allocator.mutex_);
    allocator.free_[bytes].push_back(data);
  }

  std::mutex mutex_;
  Reuse reuse_ = Reuse::kLast;
  std::mt19937_64 random_;
  std::map<std::size_t, std::vector<std::byte*>> free_;
};

}  // namespace

std::string_view to_string(Reuse reuse) {
  switch (reuse) {
    case Reuse::kNever:
      return "never";
    case Reuse::kLast:
      return "last";
    case Reuse::kRandomly:
      return "randomly";
  }
  return {};
}

void install_reusing_allocator() {
  static std::once_flag once;
  std::call_once(once, [] { c10::SetCPUAllocator(&ReusingAllocator::instance()); });
}

void restart_reuse(Reuse reuse, std::uint64_t seed) {
  ReusingAllocator::instance().restart(reuse, seed);
}

}  // namespace spillway::testing
