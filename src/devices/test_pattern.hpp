/// Bytes that encode their own offset, so that a block at the wrong offset, or half a block, is
/// found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace spillway::app {

/// Writes the bytes that stand at [at, at + memory.size()) of the pattern. Both multiples of 8.
void write_pattern(std::span<std::byte> memory, std::uint64_t at) noexcept;

/// True if `memory` holds the pattern's bytes from `at`.
[[nodiscard]] bool holds_pattern(std::span<const std::byte> memory, std::uint64_t at) noexcept;

}  // namespace spillway::app
