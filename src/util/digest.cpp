#include "util/digest.hpp"

#include <bit>
#include <charconv>

// Compiled into this file, so that programs and the Python package need no library at run time.
#define XXH_INLINE_ALL
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

namespace spillway {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie in memory");

namespace {

XXH64_state_t* state_of(std::array<std::byte, 88>& bytes) noexcept {
  static_assert(sizeof(XXH64_state_t) == sizeof(bytes) && alignof(XXH64_state_t) <= 8);
  return reinterpret_cast<XXH64_state_t*>(bytes.data());
}

}  // namespace

Digest::Digest() noexcept : state_{} { XXH64_reset(state_of(state_), 0); }

void Digest::add(std::span<const std::byte> bytes) noexcept {
  XXH64_update(state_of(state_), bytes.data(), bytes.size());
}

void Digest::add(std::uint64_t number) noexcept { add(std::as_bytes(std::span(&number, 1))); }

void Digest::add_field(std::string_view text) noexcept {
  add(text.size());
  add(text);
}

std::uint64_t Digest::value() const noexcept {
  auto copy = state_;
  return XXH64_digest(state_of(copy));
}

std::uint64_t digest_of(std::initializer_list<std::uint64_t> numbers) noexcept {
  return XXH64(numbers.begin(), numbers.size() * sizeof(std::uint64_t), 0);
}

std::string digest_text(std::uint64_t digest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(16, '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, digest >>= 4U) {
    *digit = kDigits[digest & 15U];
  }
  return text;
}

std::optional<std::uint64_t> parse_digest(std::string_view text) {
  std::uint64_t digest = 0;
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, digest, 16);
  if (text.size() != 16 || error != std::errc() || last != end) return std::nullopt;
  return digest;
}

}  // namespace spillway
