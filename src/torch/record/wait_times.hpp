/// How long the compute stream waits for copies, measured in some of the steps; internal.
/// Called under the session's lock, except read().
///
/// A timed step marks its streams before and after each wait. The host does not wait: marks are
/// read when the next step that may be timed begins, if all have happened by then (else that step
/// is not timed unless it must be), or when a report is requested.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "spillway/torch/session_report.hpp"
#include "torch/device/torch_device.hpp"

namespace spillway {

enum class WaitCause { kRelease, kReload, kInPlace, kGather };

class WaitTimes {
 public:
  /// Times the first two steps after each recording step, and then every N-th; `every` 0: none.
  WaitTimes(TorchDevice& device, int every) : device_(&device), every_(every) {}

  /// `step` counts from 1. `wanted`: time it in any case, and discard marks of an earlier step that
  /// have not happened yet.
  void begin_step(std::uint64_t step, bool recorded, bool wanted = false);
  void end_step() noexcept { timing_ = false; }

  /// Runs `wait`, which makes `stream` wait, and measures for how long.
  template <typename F>
  void time(WaitCause cause, Stream& stream, F&& wait) {
    if (!timing_) {
      wait();
      return;
    }
    std::optional<TimeMark> begin = mark(stream);
    wait();
    std::optional<TimeMark> end = mark(stream);
    if (begin && end) marks_.waits.push_back({cause, std::move(*begin), std::move(*end)});
  }

  struct Wait {
    WaitCause cause{};
    TimeMark begin;
    TimeMark end;
  };
  /// The marks of one step.
  struct Marks {
    std::uint64_t step = 0;  // 0: none.
    std::vector<Wait> waits;
  };

  /// Of the last timed step, unless taken.
  [[nodiscard]] const Marks& marks() const noexcept { return marks_; }
  /// Takes the marks of a step that has ended; empty if there are none.
  [[nodiscard]] std::optional<Marks> take();
  /// Blocks until they have happened. Not under the lock. Empty if the device has failed.
  [[nodiscard]] std::optional<WaitTotals> read(const Marks& marks) const;
  void keep(const std::optional<WaitTotals>& totals);

  /// Of the last step whose marks were read.
  [[nodiscard]] const WaitTotals& last() const noexcept { return last_; }

 private:
  /// Empty on a device that has failed: the wait itself throws.
  [[nodiscard]] std::optional<TimeMark> mark(Stream& stream);
  [[nodiscard]] bool have_happened() const;

  TorchDevice* device_;
  int every_;
  std::int64_t since_recording_ = 0;
  bool timing_ = false;
  Marks marks_;
  WaitTotals last_;
};

}  // namespace spillway
