/// The five measurements of bench/transfer. main.cpp says how to read their figures.
#pragma once

#include <vector>

#include "spillway/core/device.hpp"
#include "support/figure.hpp"

namespace spillway::bench {

struct Settings {
  bool quick = false;
  Bytes area;                ///< Memory that copies walk over, on each side.
  std::vector<Bytes> sizes;  ///< Of one copy.
  int repeats = 0;
  /// Whether limits for a GPU apply: a full run on a GPU.
  bool judge_device = false;
};

/// The engine compared with bare copies: each direction alone, and both at once.
/// Errors: DeviceError for a wrong byte.
[[nodiscard]] std::vector<Figure> measure_throughput(Device& device, const Settings& settings);

/// Time of the calling thread to offload and reload one buffer.
[[nodiscard]] std::vector<Figure> measure_host_cost(Device& device, const Settings& settings);

/// Time of a slab's allocate and free, on a mixed trace with retire events.
[[nodiscard]] std::vector<Figure> measure_slab_cost(const Settings& settings);

/// Address range of a slab under buffers of transformer layers, relative to the live bytes.
[[nodiscard]] std::vector<Figure> measure_footprint(const Settings& settings);

/// Time to pin host memory, and how long the caller waits for it.
[[nodiscard]] std::vector<Figure> measure_pinning(Device& device, const Settings& settings);

}  // namespace spillway::bench
