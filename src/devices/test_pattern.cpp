#include "devices/test_pattern.hpp"

#include <cstring>

namespace spillway::app {
namespace {

/// The finaliser of SplitMix64: every bit of the offset changes about half of the word's bits.
std::uint64_t word_at(std::uint64_t offset) noexcept {
  std::uint64_t z = offset + 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

}  // namespace

void write_pattern(std::span<std::byte> memory, std::uint64_t at) noexcept {
  for (std::size_t i = 0; i < memory.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t word = word_at(at + i);
    std::memcpy(memory.data() + i, &word, sizeof(word));
  }
}

bool holds_pattern(std::span<const std::byte> memory, std::uint64_t at) noexcept {
  std::uint64_t differences = 0;
  for (std::size_t i = 0; i < memory.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, memory.data() + i, sizeof(word));
    differences |= word ^ word_at(at + i);
  }
  return differences == 0;
}

}  // namespace spillway::app
