/// SIGTERM and SIGINT as a question that a program asks between two steps.
#pragma once

namespace spillway::app {

/// While it lives, the first such signal only raises a flag; a second one ends the process as if
/// this class were not there. Schedulers send SIGTERM some time before they end a job, so there is
/// time to save. One at a time in a process.
class StopSignal {
 public:
  StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal();

  /// The signal that came, or 0. Ranks get it at different times: they have to agree on the step.
  /// Threads: any.
  [[nodiscard]] int received() const noexcept;
};

}  // namespace spillway::app
