/// Amounts of memory as a type of their own, with the texts people write for them.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace spillway {

/// A number of bytes. A value type; arithmetic is that of std::uint64_t and is not checked.
class Bytes {
 public:
  constexpr Bytes() noexcept = default;
  constexpr explicit Bytes(std::uint64_t count) noexcept : count_(count) {}

  [[nodiscard]] constexpr std::uint64_t count() const noexcept { return count_; }

  constexpr Bytes& operator+=(Bytes other) noexcept {
    count_ += other.count_;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes other) noexcept {
    count_ -= other.count_;
    return *this;
  }
  friend constexpr Bytes operator+(Bytes a, Bytes b) noexcept { return a += b; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) noexcept { return a -= b; }
  friend constexpr Bytes operator*(Bytes a, std::uint64_t n) noexcept {
    return Bytes(a.count_ * n);
  }
  friend constexpr auto operator<=>(Bytes, Bytes) noexcept = default;

 private:
  std::uint64_t count_ = 0;
};

/// The largest size that a file, an option or a text may give, 256 TiB: no machine has as much, and
/// sums of thousands of such sizes still fit into 63 bits.
inline constexpr Bytes kMostBytes{1ULL << 48U};

/// Rounds up to a multiple of `step`, which must not be zero.
[[nodiscard]] constexpr Bytes round_up(Bytes value, Bytes step) noexcept {
  return Bytes((value.count() + step.count() - 1) / step.count() * step.count());
}

/// Reads "8 GiB", "1.5GB", "512 MiB", "4096" or "0". Units: B, kB, MB, GB, TB (powers of 1000) and
/// KiB, MiB, GiB, TiB (powers of 1024), in any case; no unit means bytes. Part bytes are cut off.
/// At most kMostBytes.
/// Errors: InvalidArgument with the text, the position in it and what is accepted.
[[nodiscard]] Bytes parse_bytes(std::string_view text);

/// "0 B", "512 B", "1.5 MiB", "24.4 GiB": binary units, one decimal, for people. Not reversible.
[[nodiscard]] std::string to_string(Bytes value);

namespace literals {
constexpr Bytes operator""_B(unsigned long long n) noexcept { return Bytes(n); }
constexpr Bytes operator""_KiB(unsigned long long n) noexcept { return Bytes(n << 10U); }
constexpr Bytes operator""_MiB(unsigned long long n) noexcept { return Bytes(n << 20U); }
constexpr Bytes operator""_GiB(unsigned long long n) noexcept { return Bytes(n << 30U); }
}  // namespace literals

}  // namespace spillway
