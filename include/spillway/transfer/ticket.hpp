/// A buffer that was offloaded: its block in the tier and the copies that use it.
#pragma once

#include <cstdint>
#include <utility>

#include "spillway/core/bytes.hpp"
#include "spillway/core/event.hpp"
#include "spillway/core/stream.hpp"
#include "spillway/memory/lease.hpp"

namespace spillway {

class TransferEngine;

namespace detail {

struct CopyTimes {
  Nanoseconds queued{};
  EventRef started;
  EventRef done;
  EventRef wait_begin;
  EventRef wait_end;
};

struct TicketState {
  std::uint64_t id = 0;
  Lease lease;
  Bytes size;
  Stream* producer = nullptr;
  EventRef stored;  // The copy out is done.
  bool released = false;
  Stream* consumer = nullptr;
  EventRef loaded;  // The latest copy back is done.
  bool ready = false;
  CopyTimes out_times;
  CopyTimes back_times;
};

struct PendingRecord {
  std::uint64_t id = 0;
  Bytes size;
  CopyTimes out;
  CopyTimes back;
};

}  // namespace detail

/// Move-only. Destroying it, at whatever point, cancels what is left and is always safe: the block
/// goes back to the tier with the event of the last copy that uses it, the producer's stream waits
/// for a copy out that was not released, and the consumer's stream for a copy back that was not
/// made ready. So the memory of source and destination may be used again on those streams, as if
/// release() and ready() had been called.
class Ticket {
 public:
  Ticket() noexcept = default;
  Ticket(Ticket&& other) noexcept { swap(other); }
  Ticket& operator=(Ticket&& other) noexcept {
    Ticket(std::move(other)).swap(*this);
    return *this;
  }
  ~Ticket();

  explicit operator bool() const noexcept { return state_ != nullptr; }
  [[nodiscard]] Bytes size() const noexcept { return state_->size; }
  /// The source may have been given up; before that it can be used as it is, without a reload.
  [[nodiscard]] bool released() const noexcept { return state_->released; }
  /// A reload was started.
  [[nodiscard]] bool reloading() const noexcept { return state_->loaded != nullptr; }

  void swap(Ticket& other) noexcept {
    std::swap(engine_, other.engine_);
    std::swap(state_, other.state_);
  }

 private:
  friend class TransferEngine;
  Ticket(TransferEngine& engine, detail::TicketState& state) noexcept
      : engine_(&engine), state_(&state) {}

  TransferEngine* engine_ = nullptr;
  detail::TicketState* state_ = nullptr;
};

}  // namespace spillway
