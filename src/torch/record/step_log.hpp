/// What a step noted of itself: marks on its streams, in the order in which they were made, and
/// what lies between them; internal.
///
/// A value: EventLog writes it while the step runs, nobody changes it afterwards. What it says is
/// read by functions that know nothing else of the session: moments_of(), wait_totals(),
/// step_time(), step_events().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/plan/profile.hpp"
#include "torch/device/torch_device.hpp"

namespace spillway {

/// What a stream waits for.
enum class WaitCause { kRelease, kReload, kInPlace, kGather };

struct StepLog {
  /// What marks are made for. A step that needs nothing makes none and has no log.
  struct Needs {
    bool step_time = false;  // Where the step begins and ends.
    bool waits = false;      // Around each wait.
    bool compute = false;    // Where the session begins and ends to run; with moments of passes.
    bool memory = false;     // With it, how much is allocated there.

    [[nodiscard]] bool any() const noexcept { return step_time || waits || compute; }
  };

  /// A position in `marks`.
  using Mark = std::size_t;

  struct Wait {
    WaitCause cause{};
    Mark begin = 0;
    Mark end = 0;
  };

  /// What the model computed between two runs of the session. Bytes are those beyond `at_start`,
  /// where memory is needed.
  struct Interval {
    Mark begin = 0;
    Mark end = 0;
    std::int64_t peak = 0;        // Allocated at once meanwhile.
    std::int64_t allocated = 0;   // At its end.
    std::int64_t peak_after = 0;  // From its end until the next interval.
    std::int64_t saved = 0;       // Of saved buffers that are counted, meanwhile.
  };

  /// A moment of a pass; it ends what the pass did since the moment before.
  struct PassMoment {
    int pass = 0;  // Its number in the step.
    MomentKind kind{};
    int index = -1;
    std::size_t intervals = 0;  // That ended before it.
    // In a traced step: the buffer that is unpacked, or the name of the call that begins.
    int detail = -1;
  };

  /// In a traced step: what the session did with a buffer.
  struct Work {
    enum class Kind { kGather, kReplay } kind{};
    int pass = 0;
    int buffer = -1;
    Bytes bytes;
    Mark begin = 0;
    Mark end = 0;
  };

  /// In a traced step: the offload of a buffer.
  struct CopyOut {
    std::uint64_t ticket = 0;
    int pass = 0;
    int buffer = -1;
  };

  std::uint64_t step = 0;  // Counted from 1.
  Needs needs;
  std::vector<TimeMark> marks;  // From `marked` on: of earlier steps, to be used again.
  std::size_t marked = 0;
  std::optional<Mark> begin;  // Of the step, if its time is needed and could be noted.
  std::optional<Mark> end;
  std::vector<Wait> waits;
  std::vector<Interval> intervals;
  std::vector<PassMoment> moments;
  std::vector<Work> works;
  std::vector<CopyOut> copies;
  std::vector<std::string> names;  // Of calls.
  std::optional<TimeMark> epoch;   // Where the times of a trace count from; empty: not traced.
  bool counts_saved = false;       // Saved buffers were counted.
  bool failed = false;             // Not all of the compute could be noted: it has no times.
  Bytes at_start;                  // Allocated when the step began.
  Bytes peak;                      // Since then, where memory was needed.

  [[nodiscard]] bool has_happened(Mark mark, const TorchDevice& device) const {
    return device.has_happened(marks[mark]);
  }
  /// Blocks until both have happened.
  [[nodiscard]] Nanoseconds between(Mark from, Mark to, TorchDevice& device) const {
    return device.elapsed(marks[from], marks[to]);
  }
};

}  // namespace spillway
