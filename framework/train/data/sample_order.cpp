#include "train/data/sample_order.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace spillway::app {

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t x = a * 0x9e3779b97f4a7c15U + b + 0x2545f4914f6cdd1dU;
  for (const std::uint64_t factor : {0xbf58476d1ce4e5b9U, 0x94d049bb133111ebU}) {
    x = (x ^ (x >> 31U)) * factor;
  }
  return x ^ (x >> 29U);
}

std::uint64_t shuffled(std::uint64_t index, std::uint64_t count, std::uint64_t key) {
  // A Feistel network permutes the numbers of an even number of bits; those beyond the count are
  // sent through it again until they are within.
  const auto bits = static_cast<unsigned>(std::bit_width(count - 1));
  const unsigned half = (std::max(bits, 2U) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = index >> half;
    std::uint64_t right = index & mask;
    for (std::uint64_t round = 0; round < 6; ++round) {
      left ^= mixed(mixed(key, round), right) & mask;
      std::swap(left, right);
    }
    index = (left << half) | right;
  } while (index >= count);
  return index;
}

}  // namespace spillway::app
