/// Measures the clock and power of a GPU.
///
/// A GPU at its power limit lowers its clock, so a step that computes more may run at a lower clock
/// than the one it is compared with. The source is NVML, which comes with the driver; it is loaded
/// at run time, so that programs start without it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

namespace spillway::bench {

/// Means over the samples between start() and stop().
struct ClockReading {
  double clock = 0;   ///< Of the multiprocessors, in MHz.
  double power = 0;   ///< In watts; the driver averages over some milliseconds.
  double capped = 0;  ///< Share of samples in which the power limit lowered the clock.
  int samples = 0;
};

/// Reads one GPU every few milliseconds on a thread of its own, between start() and stop(). Changes
/// no settings of it. Threads: one caller.
class ClockMeter {
 public:
  /// `pci_bus`: which GPU, as in app::Gpu.
  /// Errors: DeviceError if NVML is not there or does not know the GPU.
  explicit ClockMeter(const std::string& pci_bus);
  ClockMeter(const ClockMeter&) = delete;
  ClockMeter& operator=(const ClockMeter&) = delete;
  ~ClockMeter();

  void start();
  /// Waits for the current sample.
  /// Errors: DeviceError if there are no samples: the time was too short, or the GPU reports none.
  [[nodiscard]] ClockReading stop();

 private:
  class Nvml;

  void sample();

  std::unique_ptr<Nvml> nvml_;
  std::thread thread_;
  std::atomic<bool> stopped_{true};
  ClockReading sums_;  // Owned by the thread until it ends.
};

}  // namespace spillway::bench
