/// The five measurements of bench/transfer; each gives its figures. main.cpp says how to read them.
#pragma once

#include <vector>

#include "spillway/core/device.hpp"
#include "support/figure.hpp"

namespace spillway::bench {

struct Settings {
  bool quick = false;
  Bytes area;                ///< Copies walk over this much memory on each side.
  std::vector<Bytes> sizes;  ///< Of one copy.
  int repeats = 0;
  /// Limits for a GPU are meant for this run: it is on one, and a full run.
  bool judge_device = false;
};

/// Engine beside plain copies: each way alone, and both ways at once.
/// Errors: DeviceError for a wrong byte.
[[nodiscard]] std::vector<Figure> measure_throughput(Device& device, const Settings& settings);

/// What one buffer's way out and back costs the calling thread.
[[nodiscard]] std::vector<Figure> measure_host_cost(Device& device, const Settings& settings);

/// What a slab's allocate and free cost, on a mixed trace with retire events.
[[nodiscard]] std::vector<Figure> measure_slab_cost(const Settings& settings);

/// How much of the slab's range transformer layers need, compared with what is live.
[[nodiscard]] std::vector<Figure> measure_footprint(const Settings& settings);

/// How long memory takes to be made ready, and how long the caller waits for that.
[[nodiscard]] std::vector<Figure> measure_backing(Device& device, const Settings& settings);

}  // namespace spillway::bench
