#include "spillway/torch/host_memory.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "torch/device/memory_hold.hpp"

namespace spillway {
namespace {

std::atomic<std::int64_t> g_now = 0;
std::atomic<std::int64_t> g_peak = 0;

/// Precedes each allocation; as wide as torch's alignment.
struct alignas(64) Header {
  std::size_t bytes = 0;
  std::atomic<std::uint32_t> holders = 1;  // The owner, and every MemoryHold.
};
constexpr std::size_t kHeader = sizeof(Header);
static_assert(kHeader == 64);

Header& header_of(void* data) {
  return *reinterpret_cast<Header*>(static_cast<std::byte*>(data) - kHeader);  // NOLINT
}

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
    new (base) Header{bytes};
    count(static_cast<std::int64_t>(bytes));
    std::byte* const data = base + kHeader;
    return {data, data, &free_counted, c10::Device(c10::kCPU)};
  }

  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static void free_counted(void* data) {
    if (data == nullptr) return;
    Header& header = header_of(data);
    if (header.holders.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    count(-static_cast<std::int64_t>(header.bytes));
    free_before(&header);
  }

 private:
  inline static c10::DeleterFnPtr free_before = nullptr;
  c10::Allocator* before_;
};

Bytes bytes_of(std::int64_t count) {
  return Bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0)));
}

}  // namespace

MemoryHold::MemoryHold(const c10::Storage& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  if (data.get() == nullptr || data.get_deleter() != &CountingAllocator::free_counted) return;
  data_ = data.get_context();
  header_of(data_).holders.fetch_add(1, std::memory_order_relaxed);
}

MemoryHold::~MemoryHold() { CountingAllocator::free_counted(data_); }

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
