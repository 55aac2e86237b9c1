/// A run in one number: its final parameters and its losses, however its parameters were spread
/// over ranks. docs/train.md says exactly what is hashed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway::app {

/// The digest of one parameter, from tensor_digest().
struct NamedDigest {
  std::string name;
  std::uint64_t digest = 0;
};

/// Of all parameters, in the order of their names. One that several ranks hold (a tied weight, a
/// copy of a data-parallel rank) counts once.
/// Errors: InvalidArgument if such copies differ, with the name: the ranks have diverged.
[[nodiscard]] std::uint64_t combined_digest(std::vector<NamedDigest> parameters);

/// Of the losses of a run, added step by step. Its value is all that a resumed run needs of the
/// steps before.
class LossDigest {
 public:
  LossDigest() = default;
  explicit LossDigest(std::uint64_t value) : value_(value) {}

  /// Bit for bit: a NaN counts as any other loss.
  void add(std::int64_t step, double loss) noexcept;
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0;
};

/// "digest: parameters 0123456789abcdef losses fedcba9876543210", the line that --digest prints.
[[nodiscard]] std::string digest_line(std::uint64_t parameters, std::uint64_t losses);

}  // namespace spillway::app
