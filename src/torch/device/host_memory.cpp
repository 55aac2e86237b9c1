#include "spillway/torch/host_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

namespace spillway {
namespace {

std::atomic<std::int64_t> g_now = 0;
std::atomic<std::int64_t> g_peak = 0;

/// Precedes each allocation and holds its size; as wide as torch's alignment.
constexpr std::size_t kHeader = 64;

void count(std::int64_t bytes) {
  const std::int64_t now = g_now.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::int64_t peak = g_peak.load(std::memory_order_relaxed);
  while (now > peak && !g_peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator& before) : before_(&before) {
    free_before = before.raw_deleter();
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return before_->allocate(0);
    c10::DataPtr whole = before_->allocate(bytes + kHeader);
    auto* const base = static_cast<std::byte*>(whole.release_context());
    std::memcpy(base, &bytes, sizeof(bytes));
    count(static_cast<std::int64_t>(bytes));
    std::byte* const data = base + kHeader;
    return {data, data, &free_counted, c10::Device(c10::kCPU)};
  }

  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void free_counted(void* data) {
    if (data == nullptr) return;
    std::byte* const base = static_cast<std::byte*>(data) - kHeader;
    std::size_t bytes = 0;
    std::memcpy(&bytes, base, sizeof(bytes));
    count(-static_cast<std::int64_t>(bytes));
    free_before(base);
  }

  inline static c10::DeleterFnPtr free_before = nullptr;
  c10::Allocator* before_;
};

Bytes bytes_of(std::int64_t count) {
  return Bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0)));
}

}  // namespace

void count_host_memory() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::Allocator* const before = c10::GetCPUAllocator();
    if (before->raw_deleter() == nullptr) return;
    // Never destroyed: storages free their memory through it until the very end of the process.
    c10::SetCPUAllocator(new CountingAllocator(*before));
  });
}

Bytes host_memory() { return bytes_of(g_now.load(std::memory_order_relaxed)); }

Bytes host_memory_peak() { return bytes_of(g_peak.load(std::memory_order_relaxed)); }

Bytes start_host_memory_peak() {
  return bytes_of(g_peak.exchange(g_now.load(std::memory_order_relaxed)));
}

}  // namespace spillway
