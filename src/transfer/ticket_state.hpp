/// What the engine knows of one ticket; internal. All of it is guarded by the engine's lock, except
/// `size`, `released` and `reloading`, which only the ticket's own user changes and reads.
#pragma once

#include <cstdint>
#include <exception>

#include "spillway/core/bytes.hpp"
#include "spillway/core/clock.hpp"
#include "spillway/core/event.hpp"
#include "spillway/core/stream.hpp"
#include "spillway/memory/lease.hpp"

namespace spillway::detail {

/// When a copy and the wait for it happened; empty without Timing::kOn, but for `queued`.
struct CopyTimes {
  Nanoseconds queued{};
  EventRef started;
  EventRef done;
  EventRef wait_begin;
  EventRef wait_end;
};

/// One copy of a ticket's buffer, out or back.
struct Copy {
  Stream* partner = nullptr;    // The producer or the consumer.
  std::byte* device = nullptr;  // The buffer on the device.
  EventRef done;                // Null: there is no copy, or its group is not queued yet.
  bool waiting = false;         // In an open group of its lane.
  bool settled = false;         // The partner's stream waits for it already.
  Stream* waited_by = nullptr;  // Of a copy out: the stream given to release().
  bool out_implied = false;     // Of a copy back: its partner has waited for the copy out.
  bool lost = false;            // Some of it may run, and no event says when it is over.
  std::exception_ptr error;     // The device refused it.
  CopyTimes times;
};

struct TicketState {
  std::uint64_t id = 0;
  Bytes size;
  Lease lease;
  Copy out;
  Copy back;
  EventRef earlier_back;  // The end of the copies back before `back`: they read the block too.
  bool released = false;
  bool reloading = false;
};

}  // namespace spillway::detail
