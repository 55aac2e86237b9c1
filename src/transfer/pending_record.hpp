/// A TransferRecord whose times are still events; internal.
#pragma once

#include <cstdint>

#include "ticket_state.hpp"

namespace spillway::detail {

struct PendingRecord {
  std::uint64_t id = 0;
  Bytes size;
  CopyTimes out;
  CopyTimes back;
};

}  // namespace spillway::detail
