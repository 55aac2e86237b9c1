/// A hash of bytes that finds damage and tells runs apart: XXH64 with seed 0, as `xxhsum -H64`
/// prints it. Not a signature: whoever wants two texts with one hash can make them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace spillway::app {

class Hash64 {
 public:
  Hash64() noexcept;

  /// In any pieces: only their sequence counts.
  void add(std::span<const std::byte> bytes) noexcept;
  void add(std::string_view text) noexcept { add(std::as_bytes(std::span(text))); }
  /// Its eight bytes, the lowest first.
  void add(std::uint64_t number) noexcept;

  /// Of all that was added; more may be added.
  [[nodiscard]] std::uint64_t value() const noexcept;

 private:
  void take_block(const std::byte* block) noexcept;

  std::array<std::uint64_t, 4> lanes_;
  std::array<std::byte, 32> rest_{};
  std::size_t rest_size_ = 0;
  std::uint64_t size_ = 0;
};

/// "44bc2cf5ad770999"
[[nodiscard]] std::string hash_text(std::uint64_t hash);
/// Nothing if the text is not 16 such digits.
[[nodiscard]] std::optional<std::uint64_t> parse_hash(std::string_view text);

}  // namespace spillway::app
