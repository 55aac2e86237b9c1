/// The moments of a step's passes, with times and bytes, from its log; internal. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "spillway/plan/profile.hpp"
#include "torch/record/step_log.hpp"

namespace spillway {

struct PassMoments {
  std::vector<Moment> list;  // The last one is the end.
  bool backward = false;
  bool in_order = true;  // Nothing was saved after its backward had begun.

  // Untracked bytes at the borders of the pass, to subtract those of other passes in flight.
  // When its forward began.
  std::optional<std::int64_t> before_forward;
  // More than that when another pass began before its backward.
  std::optional<std::int64_t> left;
  // When its backward began, less `left`.
  std::int64_t before_backward = 0;
  // More than that when another pass followed.
  std::optional<std::int64_t> after;
};

struct StepMoments {
  /// Which moment of which pass an interval leads to.
  struct Place {
    int pass = -1;  // -1: of none.
    std::size_t moment = 0;
  };
  std::vector<PassMoments> passes;  // By number.
  std::vector<Place> places;        // By interval.
};

/// What was measured since the moment before belongs to the pass of the next one, or to the pass
/// before if that was in its backward. No times yet. `passes`: how many the step had.
[[nodiscard]] StepMoments moments_of(const StepLog& log, std::size_t passes);

/// Whether add_times() would not block. Never blocks itself.
[[nodiscard]] bool times_known(const StepLog& log, const TorchDevice& device);
/// Adds how long the device computed before each moment. Blocks until the step is over there.
/// Errors: DeviceError of a failed device.
void add_times(const StepLog& log, TorchDevice& device, StepMoments& moments);

/// The moments; changes between the last of them and the end count for the last, so that the end
/// has the remaining bytes.
[[nodiscard]] std::vector<Moment> recorded_moments(const PassMoments& pass);

/// The same with the bytes of the pass alone: without those of other passes in flight when its
/// forward or its backward began.
[[nodiscard]] std::vector<Moment> own_moments(const PassMoments& pass);

}  // namespace spillway
