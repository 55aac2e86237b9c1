/// How much memory a step may take: the limit for a session's planner.
///
///   spillway::SessionOptions options;
///   options.budget = 8_GiB;
///   options.budget = spillway::Budget::share(0.33);
///   options.budget = spillway::Budget::automatic();
#pragma once

#include <optional>

#include "spillway/core/bytes.hpp"

namespace spillway {

class Budget {
 public:
  /// The most a step may have allocated at once above what is allocated when it begins.
  Budget(Bytes bytes) : bytes_(bytes) {}  // NOLINT(google-explicit-constructor): it is one.

  /// A share of the peak of a step in which everything is kept, as profiled.
  /// Errors: InvalidArgument unless it is more than 0 and less than 1.
  [[nodiscard]] static Budget share(double share);

  /// The free device memory at the end of the recording step, less `margin` for fragmentation and
  /// other programs.
  [[nodiscard]] static Budget automatic(Bytes margin = Bytes(1ULL << 30U));

  /// The bytes, given what a step in which everything is kept has at most, and what is free for a
  /// step.
  [[nodiscard]] Bytes resolve(Bytes kept_peak, Bytes room) const;

  /// Whether it is a number of bytes: neither kept_peak nor room is looked at.
  [[nodiscard]] bool is_bytes() const noexcept { return !share_ && !margin_; }
  /// Whether kept_peak is looked at.
  [[nodiscard]] bool is_share() const noexcept { return share_.has_value(); }

 private:
  Budget() = default;

  Bytes bytes_;
  std::optional<double> share_;
  std::optional<Bytes> margin_;
};

}  // namespace spillway
