// A race on members of a class of ours, for ThreadSanitizer to find: two threads use one
// OffsetAllocator, which allows one at a time. They take turns by an atomic that orders nothing, so
// that nothing is damaged, and the report is the same in every run.
#include <atomic>
#include <cstdio>
#include <thread>

#include "spillway/memory/offset_allocator.hpp"

int main() {
  using spillway::Bytes;
  spillway::OffsetAllocator allocator(Bytes(1U << 20U));
  std::atomic<bool> done = false;
  std::thread other([&] {
    (void)allocator.allocate(Bytes(512));
    done.store(true, std::memory_order_relaxed);
  });
  while (!done.load(std::memory_order_relaxed)) std::this_thread::yield();
  (void)allocator.allocate(Bytes(512));
  other.join();
  std::printf("no race was found; %s are used\n", to_string(allocator.used()).c_str());
  return 0;
}
