#include "spillway/memory/address_range.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "spillway/core/error.hpp"
#include "spillway/memory/host_system.hpp"

namespace spillway {
namespace {

constexpr std::uint64_t kPage = 4096;

/// Writes into every page. One thread zeroes about 4.5 GiB/s, eight about 25: registering memory
/// that was not touched before costs the driver ten times as long.
void touch(std::span<std::byte> memory) {
  const std::uint64_t pieces = memory.size() / kHugePage.count();
  const std::uint64_t workers =
      std::min<std::uint64_t>(std::clamp(std::thread::hardware_concurrency() / 2, 1U, 8U), pieces);
  const auto touch_part = [&memory, pieces, workers](std::uint64_t worker) {
    const std::uint64_t begin = pieces * worker / workers * kHugePage.count();
    const std::uint64_t end = pieces * (worker + 1) / workers * kHugePage.count();
    for (std::uint64_t at = begin; at < end; at += kPage) {
      *static_cast<volatile std::byte*>(memory.data() + at) = std::byte{0};
    }
  };
  std::vector<std::jthread> threads;
  for (std::uint64_t worker = 1; worker < workers; ++worker) {
    threads.emplace_back(touch_part, worker);
  }
  touch_part(0);
}

}  // namespace

AddressRange::AddressRange(Bytes size) : size_(round_up(size, kHugePage)) {
  mapping_size_ = size_ + kHugePage;
  void* mapping = ::mmap(nullptr, mapping_size_.count(), PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    throw OutOfMemory("slab", "no " + to_string(mapping_size_) +
                                  " of addresses to be had; raise the limit on address space "
                                  "(ulimit -v) or lower the host limit");
  }
  mapping_ = static_cast<std::byte*>(mapping);
  const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
  data_ = mapping_ + (round_up(Bytes(address), kHugePage).count() - address);
}

AddressRange::~AddressRange() { ::munmap(mapping_, mapping_size_.count()); }

std::span<std::byte> AddressRange::commit(Bytes from, Bytes to, std::optional<int> numa_node,
                                          const HostView& view) {
  const Bytes size = to - from;
  if (const Bytes available = available_host_memory(view), reserve = host_reserve(view);
      size + reserve > available) {
    throw OutOfMemory("slab", to_string(size) + " more host memory wanted, " +
                                  to_string(available) + " is free, of which " +
                                  to_string(reserve) +
                                  " is left to others; lower the host limit or close other "
                                  "programs");
  }
  std::byte* const data = data_ + from.count();
  if (::mprotect(data, size.count(), PROT_READ | PROT_WRITE) != 0) {
    throw OutOfMemory(
        "slab", "the system refused " + to_string(size) + " of host memory; lower the host limit");
  }
  // Refused where the kernel has no huge pages; small pages work too, only slower.
  (void)::madvise(data, size.count(), MADV_HUGEPAGE);
  if (numa_node) bind_to_node(data, size, *numa_node);
  touch({data, size.count()});
  return {data, size.count()};
}

void AddressRange::decommit(Bytes from, Bytes to) noexcept {
  std::byte* const data = data_ + from.count();
  const Bytes size = to - from;
  (void)::madvise(data, size.count(), MADV_DONTNEED);
  (void)::mprotect(data, size.count(), PROT_NONE);
}

}  // namespace spillway
