/// The digest that finds damage and tells apart plans, profiles, files and runs: XXH64 with seed 0,
/// as `xxhsum -H64` prints it. The same on every machine, so ranks may compare it. Not a signature:
/// whoever wants two texts with one digest can make them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace spillway {

class Digest {
 public:
  Digest() noexcept;

  /// In any pieces: only their sequence counts.
  void add(std::span<const std::byte> bytes) noexcept;
  void add(std::string_view text) noexcept { add(std::as_bytes(std::span(text))); }
  /// Its eight bytes, the lowest first.
  void add(std::uint64_t number) noexcept;
  /// The length first, so that ("ab", "c") and ("a", "bc") differ.
  void add_field(std::string_view text) noexcept;

  /// Of all that was added; more may be added.
  [[nodiscard]] std::uint64_t value() const noexcept;

 private:
  alignas(8) std::array<std::byte, 88> state_;  // XXH64_state_t.
};

/// The digest of numbers, without a Digest.
[[nodiscard]] std::uint64_t digest_of(std::initializer_list<std::uint64_t> numbers) noexcept;

/// "44bc2cf5ad770999"
[[nodiscard]] std::string digest_text(std::uint64_t digest);
/// Nothing if the text is not 16 such digits.
[[nodiscard]] std::optional<std::uint64_t> parse_digest(std::string_view text);

}  // namespace spillway
