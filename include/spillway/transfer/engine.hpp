/// Moves buffers off a device into a tier and back, hidden behind the compute stream's work.
///
/// A buffer's life:  offload -> release -> reload -> ready -> (ticket destroyed)
///   offload   the copy out starts as soon as the producer's present work is done
///   release   the consumer's stream waits for the copy out; the caller may then drop the source
///   reload    the copy back starts as soon as the consumer's present work is done
///   ready     the consumer's stream waits for the copy back; what it queues next may read it
///
/// Small copies are grouped: queuing a group costs the host little more than one copy.
/// A group goes to the device when it is full, when a copy of another stream or a large one
/// follows, when release(), reload() or ready() needs one of its members, or at flush().
///
/// Nothing here synchronises the host, polls, or depends on when something finished: which copies,
/// waits and addresses are used follows from the order of calls alone. Once warm, no event is made
/// and no host memory is registered.
///
/// Threads: all calls may come from any thread; they take one lock. A stream is called only within
/// calls it is given to, and in those that end a ticket it was given with; see Stream on threads.
/// Lifetime: device and tier outlive the engine; the engine outlives its tickets; a stream given to
/// offload() lives until release(), one given to reload() until ready(), or until the ticket's end.
/// Errors: a copy that fails when it runs fails the streams that wait for it (see Stream); their
/// next synchronize() throws. The engine stays failed then, and so do the streams of everyone who
/// waits for its copies: make a new one, on a new tier, to go on.
#pragma once

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

namespace detail {
class CopyLane;
class TicketStates;
struct Copy;
struct CopyTimes;
struct PendingRecord;
}  // namespace detail

struct EngineOptions {
  /// kOn: every copy and every wait is timed on the device, for TransferEngine::drain_records().
  /// Costs three more event records a copy. Copies of one group share their times.
  Timing timing = Timing::kOff;
  /// A group of small copies is full at this size; copies of up to half of it are small. Zero:
  /// every copy goes alone.
  Bytes group{8 << 20};
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
  /// Errors: InvalidArgument for an empty source; DeviceError if the device refuses the copy. No
  /// ticket exists and no memory is taken then; `producer` may overwrite the source. (For a small
  /// copy the refusal may come later: release() and reload() throw it then.)
  [[nodiscard]] std::optional<Ticket> offload(std::span<const std::byte> source, Stream& producer);

  /// Makes `consumer` wait for the copy out. What is queued on it from now on may overwrite the
  /// source, so the caller may hand the memory back to the consumer's allocator.
  /// Errors: DeviceError if the device refused the copy out. The source holds the only copy then.
  void release(Ticket& ticket, Stream& consumer);

  /// Starts copying the buffer back into `destination`, which must be as large as the source.
  /// Ordering: after all work now queued on `consumer`, and after the copy out, done or not. May be
  /// called again with another destination, any number of times.
  /// Lifetime: the destination must stay valid until ready() was called and the consumer has passed
  /// that point, or the ticket is destroyed and the consumer has passed that point.
  /// Errors: InvalidArgument for a wrong size; DeviceError if the device refuses this copy or
  /// refused the copy out. `consumer` may overwrite the destination then. (For a small copy the
  /// refusal may come later: ready() throws it then.)
  void reload(Ticket& ticket, std::span<std::byte> destination, Stream& consumer);

  /// Makes `consumer` wait for the latest copy back.
  /// Errors: InvalidArgument if there was no reload; DeviceError if the device refused it: the
  /// stream given to reload() may overwrite the destination then, and reload() may be tried again.
  void ready(Ticket& ticket, Stream& consumer);

  /// Queues the small copies of groups that are not full: at the end of a burst of calls.
  void flush();

  [[nodiscard]] TransferTotals totals() const;

  /// From now on every copy and every wait is timed, as with EngineOptions::timing, and the times
  /// of records count from `epoch`, which was made with Timing::kOn and recorded on a stream of
  /// this device. Records that were not drained are forgotten.
  void start_timing(EventRef epoch);
  /// Stops timing. The records of timed copies can still be drained.
  void stop_timing();

  /// The records of all tickets destroyed since the last call whose copies were timed, in that
  /// order; copies that never went to the device have none. Blocks the host until the copies are
  /// done: for the end of a step, not for its middle.
  /// Errors: DeviceError if one of the copies failed.
  [[nodiscard]] std::vector<TransferRecord> drain_records();

 private:
  friend class Ticket;

  void cancel(detail::TicketState& state) noexcept;
  void give_up(detail::TicketState& state) noexcept;
  void throw_deferred();
  void throw_if_refused(detail::Copy& copy);
  void wait_for(Stream& waiter, const EventRef& event, detail::CopyTimes& times);
  [[nodiscard]] EventRef mark_if_timed(Stream& stream);
  void keep_record(detail::TicketState& state);

  Tier* tier_;
  EngineOptions options_;
  SteadyClock clock_;
  EventPool events_;
  EventPool timed_events_;
  std::unique_ptr<detail::CopyLane> out_;
  std::unique_ptr<detail::CopyLane> back_;
  EventRef epoch_;
  Nanoseconds epoch_time_{};

  mutable std::mutex mutex_;
  std::unique_ptr<detail::TicketStates> states_;
  std::vector<detail::PendingRecord> records_;
  TransferTotals totals_;
  std::exception_ptr deferred_;  // An error from where none can be thrown.
};

}  // namespace spillway
