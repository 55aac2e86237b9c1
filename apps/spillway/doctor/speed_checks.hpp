/// How fast the machine is: checks that measure.
#pragma once

#include <optional>
#include <vector>

#include "doctor/doctor_report.hpp"
#include "spillway/core/device.hpp"

namespace spillway::app {

struct SpeedOptions {
  std::optional<Bytes> size;  ///< Bytes to move for one measurement.
  bool quick = false;
};

/// link_out, link_back, link_both, pinning. Takes seconds. Never throws.
[[nodiscard]] std::vector<Check> check_speed(Device& device, const SpeedOptions& options);

}  // namespace spillway::app
