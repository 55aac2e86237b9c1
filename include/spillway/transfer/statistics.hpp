/// Statistics and records of the engine's copies. Value types.
#pragma once

#include <cstdint>
#include <optional>

#include "spillway/core/bytes.hpp"
#include "spillway/core/clock.hpp"

namespace spillway {

struct TransferTotals {
  std::uint64_t offloads = 0;
  std::uint64_t reloads = 0;
  std::uint64_t cancelled = 0;  ///< Tickets destroyed without a reload.
  std::uint64_t no_room = 0;    ///< Times the tier was full.
  std::uint64_t live = 0;       ///< Tickets now.
  Bytes bytes_out;
  Bytes bytes_back;
};

/// One copy. Times count from the engine's construction, or from what start_timing() was given.
struct CopyRecord {
  Nanoseconds queued{};   ///< When it was requested, on the host.
  Nanoseconds started{};  ///< When the copy stream reached it, on the device.
  Nanoseconds done{};     ///< When it had finished, on the device.
  Nanoseconds wait{};     ///< How long the stream that needed it waited for it.
};

struct TransferRecord {
  std::uint64_t ticket = 0;  ///< 0, 1, 2, ... in the order of offload().
  Bytes bytes;
  CopyRecord out;
  std::optional<CopyRecord> back;  ///< The latest reload.
};

}  // namespace spillway
