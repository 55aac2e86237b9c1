/// How soon a session records again where the program makes that necessary; internal.
#pragma once

#include <algorithm>
#include <cstdint>

namespace spillway {

/// Recordings that a program makes necessary again and again happen later and later.
class RecordingDelay {
 public:
  /// A step has ended.
  void count_step() noexcept { ++steps_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

  [[nodiscard]] bool is_over() const noexcept { return steps_ >= record_after_; }
  /// The next step records, or would if there were no delay.
  void begin() noexcept {
    const int doublings = std::clamp(++recordings_ - kRecordingsAtOnce, -1, kMostDoublings);
    record_after_ = doublings < 0 ? 0 : steps_ + 2 + (std::uint64_t{1} << doublings);
  }

 private:
  /// Recordings that happen at once; each further one waits twice as long.
  static constexpr int kRecordingsAtOnce = 3;
  static constexpr int kMostDoublings = 20;

  std::uint64_t steps_ = 0;  // That have ended.
  int recordings_ = 0;
  std::uint64_t record_after_ = 0;
};

}  // namespace spillway
