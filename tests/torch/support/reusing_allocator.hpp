/// The CPU's allocator for tests in which it matters whether memory is handed out again at its old
/// address. Which address comes next follows from the order of calls alone, so what depends on it
/// repeats on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace spillway::testing {

enum class Reuse {
  kNever,     ///< Every allocation has a new address.
  kLast,      ///< That of the block of its size that was freed last; a new one if there is none.
  kRandomly,  ///< That of any free block of its size, or a new one.
};
inline constexpr std::array kAllReuses{Reuse::kNever, Reuse::kLast, Reuse::kRandomly};

[[nodiscard]] std::string_view to_string(Reuse reuse);

/// Puts the allocator below all others, for the rest of the process; later calls do nothing. What
/// is freed is overwritten.
/// Precondition: count_host_memory() has not been called yet, nor a session been made.
void install_reusing_allocator();

/// From here on blocks are reused so, and none that were freed before. Threads: no other allocates.
void restart_reuse(Reuse reuse, std::uint64_t seed);

}  // namespace spillway::testing
