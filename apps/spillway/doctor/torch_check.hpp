/// The check of LibTorch. torch_check_linked.cpp is built where spillway::torch is there,
/// torch_check_absent.cpp elsewhere.
#pragma once

#include "devices/devices.hpp"
#include "doctor/doctor_report.hpp"

namespace spillway::app {

[[nodiscard]] Check check_torch(const GpuSystem& gpus);

}  // namespace spillway::app
