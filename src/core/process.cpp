#include "spillway/core/process.hpp"

#include <atomic>
#include <new>

#include <sys/mman.h>
#include <unistd.h>

namespace spillway {
namespace {

/// The number of this process, on a page of its own that the kernel fills with zeros in a child.
/// Null where the kernel cannot (Linux before 4.14).
std::atomic<std::uint64_t>* wiped_in_children() noexcept {
  const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const page =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (::madvise(page, size, MADV_WIPEONFORK) != 0) {
    (void)::munmap(page, size);
    return nullptr;
  }
  return new (page) std::atomic<std::uint64_t>(0);  // Never unmapped.
}

/// How many processes in this line of forks have asked; a child inherits it.
std::atomic<std::uint64_t> g_asked{0};

}  // namespace

ProcessId ProcessId::current() noexcept {
  static std::atomic<std::uint64_t>* const kNumber = wiped_in_children();
  if (kNumber == nullptr) return ProcessId(static_cast<std::uint64_t>(::getpid()));
  std::uint64_t number = kNumber->load(std::memory_order_relaxed);
  if (number != 0) return ProcessId(number);
  // Threads that ask for the first time at once agree on one number.
  const std::uint64_t next = g_asked.fetch_add(1, std::memory_order_relaxed) + 1;
  const bool first = kNumber->compare_exchange_strong(number, next, std::memory_order_relaxed);
  return ProcessId(first ? next : number);
}

}  // namespace spillway
