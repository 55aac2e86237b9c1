#include "util/digest.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

namespace spillway::app {
namespace {

constexpr std::uint64_t kPrime1 = 0x9e3779b185ebca87U;
constexpr std::uint64_t kPrime2 = 0xc2b2ae3d27d4eb4fU;
constexpr std::uint64_t kPrime3 = 0x165667b19e3779f9U;
constexpr std::uint64_t kPrime4 = 0x85ebca77c2b2ae63U;
constexpr std::uint64_t kPrime5 = 0x27d4eb2f165667c5U;
static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

template <typename T>
T word(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

std::uint64_t turned(std::uint64_t lane, std::uint64_t input) noexcept {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

}  // namespace

Hash64::Hash64() noexcept : lanes_{kPrime1 + kPrime2, kPrime2, 0, std::uint64_t{0} - kPrime1} {}

void Hash64::take_block(const std::byte* block) noexcept {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i] = turned(lanes_[i], word<std::uint64_t>(block + 8 * i));
  }
}

void Hash64::add(std::span<const std::byte> bytes) noexcept {
  size_ += bytes.size();
  if (rest_size_ > 0) {
    const std::size_t count = std::min(bytes.size(), rest_.size() - rest_size_);
    std::copy_n(bytes.data(), count, rest_.data() + rest_size_);
    rest_size_ += count;
    bytes = bytes.subspan(count);
    if (rest_size_ < rest_.size()) return;
    take_block(rest_.data());
    rest_size_ = 0;
  }
  for (; bytes.size() >= rest_.size(); bytes = bytes.subspan(rest_.size())) {
    take_block(bytes.data());
  }
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
  rest_size_ = bytes.size();
}

void Hash64::add(std::uint64_t number) noexcept { add(std::as_bytes(std::span(&number, 1))); }

std::uint64_t Hash64::value() const noexcept {
  std::uint64_t hash = kPrime5;
  if (size_ >= rest_.size()) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (const std::uint64_t lane : lanes_) hash = (hash ^ turned(0, lane)) * kPrime1 + kPrime4;
  }
  hash += size_;
  const std::byte* at = rest_.data();
  std::size_t left = rest_size_;
  for (; left >= 8; at += 8, left -= 8) {
    hash = std::rotl(hash ^ turned(0, word<std::uint64_t>(at)), 27) * kPrime1 + kPrime4;
  }
  if (left >= 4) {
    hash = std::rotl(hash ^ (word<std::uint32_t>(at) * kPrime1), 23) * kPrime2 + kPrime3;
    at += 4;
    left -= 4;
  }
  for (; left > 0; ++at, --left) {
    hash = std::rotl(hash ^ (std::to_integer<std::uint64_t>(*at) * kPrime5), 11) * kPrime1;
  }
  hash = (hash ^ (hash >> 33U)) * kPrime2;
  hash = (hash ^ (hash >> 29U)) * kPrime3;
  return hash ^ (hash >> 32U);
}

std::string hash_text(std::uint64_t hash) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(16, '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, hash >>= 4U) {
    *digit = kDigits[hash & 15U];
  }
  return text;
}

std::optional<std::uint64_t> parse_hash(std::string_view text) {
  std::uint64_t hash = 0;
  const char* end = text.data() + text.size();
  const auto [place, error] = std::from_chars(text.data(), end, hash, 16);
  if (text.size() != 16 || error != std::errc() || place != end) return std::nullopt;
  return hash;
}

}  // namespace spillway::app
