/// What clock and power a GPU has while something runs on it.
///
/// A GPU at the limit of its power lowers its clock, so a step that computes more may run at a lower
/// clock than the one it is compared with. The numbers are those of NVML, which comes with the
/// driver; it is loaded at run time, so that programs start where there is none.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

namespace spillway::bench {

/// Means over the samples of a while.
struct ClockReading {
  double clock = 0;   ///< Of the multiprocessors, in MHz.
  double power = 0;   ///< In watts; the driver's own mean of some milliseconds.
  double capped = 0;  ///< The share of samples at which the limit of power held the clock down.
  int samples = 0;
};

/// Reads one GPU every few milliseconds on a thread of its own, between start() and stop(). Changes
/// nothing on it. Not thread-safe: one caller.
class ClockMeter {
 public:
  /// `pci_bus`: which GPU, as in app::Gpu.
  /// Errors: DeviceError if NVML is not there or does not know the GPU.
  explicit ClockMeter(const std::string& pci_bus);
  ClockMeter(const ClockMeter&) = delete;
  ClockMeter& operator=(const ClockMeter&) = delete;
  ~ClockMeter();

  void start();
  /// Waits for the sample that is being taken.
  /// Errors: DeviceError if there is none: the while was too short, or the GPU does not tell.
  [[nodiscard]] ClockReading stop();

 private:
  class Nvml;

  void sample();

  std::unique_ptr<Nvml> nvml_;
  std::thread thread_;
  std::atomic<bool> stopped_{true};
  ClockReading sums_;  // The thread's until it has ended.
};

}  // namespace spillway::bench
