/// How long the compute stream stood still for copies, measured in some of the steps; internal.
/// Called under the session's lock, except read().
///
/// A step that is timed marks its streams before and after each wait. The host waits for nothing:
/// marks are read when the next step that could be timed begins, if they have all happened by then
/// (else that step is not timed unless it must be), or by who asks for the result.
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
  /// Of the steps that carry out a plan, the first two after each record and then every so-manyth
  /// are timed; `every` 0: none.
  WaitTimes(TorchDevice& device, int every) : device_(&device), every_(every) {}

  /// `step` counts from 1. `wanted`: it is timed in any case, and marks of a step before that have
  /// not happened yet are given up.
  void begin_step(std::uint64_t step, bool recorded, bool wanted = false);
  void end_step() noexcept { timing_ = false; }

  /// Runs `wait`, which makes `stream` wait, and sees how long it stood still.
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

  /// Of the last timed step, if nobody took them.
  [[nodiscard]] const Marks& marks() const noexcept { return marks_; }
  /// What is to be read of a step that has ended; nothing if there is none.
  [[nodiscard]] std::optional<Marks> take();
  /// Blocks until they have happened. Not under the lock. Nothing if the device has failed.
  [[nodiscard]] std::optional<WaitTotals> read(const Marks& marks) const;
  void keep(const std::optional<WaitTotals>& totals);

  /// Of the last step whose marks were read.
  [[nodiscard]] const WaitTotals& last() const noexcept { return last_; }

 private:
  /// Nothing on a device that has failed: whoever waits is told by the wait.
  [[nodiscard]] std::optional<TimeMark> mark(Stream& stream);
  [[nodiscard]] bool have_happened() const;

  TorchDevice* device_;
  int every_;
  std::int64_t since_record_ = 0;
  bool timing_ = false;
  Marks marks_;
  WaitTotals last_;
};

}  // namespace spillway
