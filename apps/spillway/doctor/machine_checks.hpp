/// What the machine has: checks that read and do not measure.
#pragma once

#include <vector>

#include "devices/devices.hpp"
#include "doctor/doctor_report.hpp"
#include "spillway/core/device.hpp"

namespace spillway::app {

/// gpu, driver, torch, host_memory, lock_limit, huge_pages, numa. Never throws.
[[nodiscard]] std::vector<Check> check_machine(const Device& device, const GpuSystem& gpus);

}  // namespace spillway::app
