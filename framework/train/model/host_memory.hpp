/// The part of device_memory.hpp that is the same with and without CUDA; internal.
#pragma once

#include <cstdint>

#include "spillway/torch/host_memory.hpp"

namespace spillway::app {

inline std::uint64_t start_measuring_host_memory() {
  count_host_memory();
  (void)start_host_memory_peak();
  return host_memory().count();
}

}  // namespace spillway::app
