/// Moves buffers off a device into a tier and back, hidden behind the compute stream's work.
///
/// A buffer's life:  offload -> release -> reload -> ready -> (ticket destroyed)
///   offload   the copy out starts as soon as the producer's present work is done
///   release   the consumer's stream waits for the copy out; the caller may then drop the source
///   reload    the copy back starts as soon as the consumer's present work is done
///   ready     the consumer's stream waits for the copy back; what it queues next may read it
///
/// Nothing here synchronises the host, polls, or depends on when something finished: which copies,
/// waits and addresses are used follows from the order of calls alone. Once warm, no event is made
/// and no host memory is registered.
///
/// Threads: all calls may come from any thread; they take one lock. Streams given to the engine are
/// called under that lock; nobody else may call into the same Stream object at the same time.
/// Lifetime: device and tier outlive the engine; the engine outlives its tickets; a stream given to
/// offload() lives until release(), one given to reload() until ready(), or until the ticket's end.
/// Errors: a copy that fails when it runs fails the streams that wait for it (see Stream); their
/// next synchronize() throws. The engine stays failed then, and so do the streams of everyone who
/// waits for its copies: make a new one, on a new tier, to go on.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/core/clock.hpp"
#include "spillway/core/device.hpp"
#include "spillway/core/event_pool.hpp"
#include "spillway/memory/tier.hpp"
#include "spillway/transfer/statistics.hpp"
#include "spillway/transfer/ticket.hpp"

namespace spillway {

struct EngineOptions {
  /// kOn: every copy and every wait is timed on the device, for TransferEngine::drain_records().
  /// Costs four more event records a copy.
  Timing timing = Timing::kOff;
};

class TransferEngine {
 public:
  TransferEngine(Device& device, Tier& tier, EngineOptions options = {});
  TransferEngine(const TransferEngine&) = delete;
  TransferEngine& operator=(const TransferEngine&) = delete;
  /// Blocks until the copies are done. Precondition: no tickets are left.
  ~TransferEngine();

  /// Starts copying `source` into the tier and returns at once; nothing if the tier has no room.
  /// Ordering: the copy starts after all work now queued on `producer`.
  /// Lifetime: the source must stay valid and unmodified until it was released and the consumer has
  /// passed that point.
  /// Errors: DeviceError if the device refuses the copy, InvalidArgument for an empty source; no
  /// ticket exists and nothing is held then.
  [[nodiscard]] std::optional<Ticket> offload(std::span<const std::byte> source, Stream& producer);

  /// Makes `consumer` wait for the copy out. What is queued on it from now on may overwrite the
  /// source, so the caller may hand the memory back to the consumer's allocator.
  void release(Ticket& ticket, Stream& consumer);

  /// Starts copying back into `destination`, which must be as large as the source was.
  /// Ordering: after all work now queued on `consumer`, and after the copy out, done or not. May be
  /// called again with another destination, any number of times.
  /// Lifetime: the destination must stay valid until ready() was called and the consumer has passed
  /// that point, or the ticket is destroyed and the consumer has passed that point.
  /// Errors: InvalidArgument for a wrong size; DeviceError if the device refuses the copy. The
  /// ticket is as before then.
  void reload(Ticket& ticket, std::span<std::byte> destination, Stream& consumer);

  /// Makes `consumer` wait for the latest copy back.
  /// Errors: InvalidArgument if there was no reload.
  void ready(Ticket& ticket, Stream& consumer);

  [[nodiscard]] TransferTotals totals() const;

  /// The records of all tickets destroyed since the last call, in that order. Blocks the host until
  /// their copies are done: for the end of a step, not for its middle.
  /// Precondition: made with Timing::kOn; else there are none.
  [[nodiscard]] std::vector<TransferRecord> drain_records();

  [[nodiscard]] Device& device() const noexcept { return *device_; }

 private:
  friend class Ticket;

  void cancel(detail::TicketState& state) noexcept;
  void throw_deferred();
  void start_copy_out(detail::TicketState& state, std::span<const std::byte> source,
                      Stream& producer);
  void start_copy_back(detail::TicketState& state, std::span<std::byte> destination,
                       Stream& consumer);
  void wait_for(Stream& waiter, const EventRef& event, detail::CopyTimes& times);
  [[nodiscard]] EventRef mark(Stream& stream);
  [[nodiscard]] EventRef mark_if_timed(Stream& stream);
  [[nodiscard]] detail::TicketState& new_state();
  void keep_record(detail::TicketState& state);

  Device* device_;
  Tier* tier_;
  EngineOptions options_;
  SteadyClock clock_;
  EventPool events_;
  std::unique_ptr<Event> point_;  // Recorded anew at each call; a queued wait keeps its old point.
  std::unique_ptr<Stream> out_;
  std::unique_ptr<Stream> back_;
  EventRef epoch_;
  Nanoseconds epoch_time_{};

  mutable std::mutex mutex_;
  std::deque<detail::TicketState> states_;  // Stable addresses, used again through idle_states_.
  std::vector<detail::TicketState*> idle_states_;
  std::vector<detail::PendingRecord> records_;
  TransferTotals totals_;
  std::exception_ptr deferred_;  // An error met where none can be thrown.
};

}  // namespace spillway
