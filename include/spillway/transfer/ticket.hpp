/// A buffer that was offloaded: its block in the tier and the copies that use it.
#pragma once

#include <cstdint>
#include <utility>

#include "spillway/core/bytes.hpp"

namespace spillway {

class TransferEngine;

namespace detail {
struct TicketState;
}

/// Move-only. Destroying it, at whatever point, cancels the remaining steps and is always safe: the
/// block goes back to the tier with the event of the last copy that uses it, the producer's stream
/// waits for a copy out that was not released, and the consumer's stream for a copy back that
/// ready() was not called for. So the memory of source and destination may be used again on those
/// streams, as if release() and ready() had been called. Threads: one at a time.
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
  /// As TransferRecord::ticket.
  [[nodiscard]] std::uint64_t id() const noexcept;
  [[nodiscard]] Bytes size() const noexcept;
  /// The source may have been released; before that it can be used without a reload.
  [[nodiscard]] bool released() const noexcept;
  /// A reload was requested.
  [[nodiscard]] bool reloading() const noexcept;

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
