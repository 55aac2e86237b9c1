/// What a step did, as counts for the report; internal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "spillway/torch/session_report.hpp"

namespace spillway {

/// As in SessionReport.
struct StepCounts {
  std::size_t on_device_peak = 0;  ///< Of saved buffers.
  std::size_t saved_peak = 0;      ///< The same if all had been kept.
  std::size_t kept_peak = 0;       ///< Of those that are planned to be kept.
  Bytes device_peak;               ///< Allocated.
  Bytes bytes_out;
  Bytes bytes_back;
  std::uint64_t used_in_place = 0;
  std::uint64_t late_reloads = 0;
  std::uint64_t repeated_calls = 0;
  std::uint64_t fused_kernels = 0;
  Bytes bytes_recomputed;
  ActionTotals offloads_skipped;
  ShardTotals shard;
};

}  // namespace spillway
