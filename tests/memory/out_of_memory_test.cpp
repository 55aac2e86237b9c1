// What the bookkeeping of memory does when it finds no memory itself.
#include <cstdlib>
#include <map>
#include <new>
#include <random>

#include <gtest/gtest.h>

#include "spillway/memory/offset_allocator.hpp"

namespace {

thread_local int g_failing_in = 0;  // The how-manyth allocation of this thread fails; 0: none.

void* allocate(std::size_t size) {
  if (g_failing_in > 0 && --g_failing_in == 0) throw std::bad_alloc();
  if (void* const memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// With those without exceptions, which a sanitizer would provide otherwise.
[[gnu::noinline]] void* operator new(std::size_t size) { return allocate(size); }
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return std::malloc(size > 0 ? size : 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t& /*tag*/) noexcept {
  std::free(memory);
}

namespace spillway {
namespace {

TEST(OffsetAllocator, LeavesAnExtentInUseThatItHasNoMemoryToFree) {
  std::mt19937_64 random(5);
  OffsetAllocator allocator(Bytes(1ULL << 40U));
  OffsetAllocator twin(Bytes(1ULL << 40U));
  std::map<std::uint64_t, std::pair<Extent, Extent>> used;
  int failures = 0;
  for (int i = 0; i < 20000; ++i) {
    if (used.size() < 20 || random() % 32 < 17) {
      const Bytes size(1 + random() % (1U << 20U));
      const Extent extent = *allocator.allocate(size);
      const Extent twins = *twin.allocate(size);
      ASSERT_EQ(extent, twins) << i;
      used[random()] = {extent, twins};
      continue;
    }
    const auto [extent, twins] = used.begin()->second;
    used.erase(used.begin());
    for (int nth = 1;; ++nth) {
      g_failing_in = nth;
      try {
        allocator.free(extent);
        g_failing_in = 0;
        break;
      } catch (const std::bad_alloc&) {
        ++failures;
      }
    }
    twin.free(twins);
    ASSERT_EQ(allocator.holes(), twin.holes()) << i;
    ASSERT_EQ(allocator.used(), twin.used()) << i;
  }
  EXPECT_GT(failures, 10);
}

}  // namespace
}  // namespace spillway
