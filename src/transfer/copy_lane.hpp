/// One direction of the link: a stream of its own, and the small copies that are grouped
/// before they are queued on the device together. Internal; every call is made under the engine's
/// lock.
#pragma once

#include <string>
#include <vector>

#include "spillway/core/device.hpp"
#include "spillway/core/event_pool.hpp"
#include "ticket_state.hpp"

namespace spillway::detail {

class CopyLane {
 public:
  /// `timed_events` are for copies that are timed, `events` for all others.
  CopyLane(Device& device, EventPool& events, EventPool& timed_events, CopyKind kind, Timing timing,
           Bytes group);

  /// For copies that are queued from now on.
  void set_timing(Timing timing) noexcept { timing_ = timing; }

  /// Queues a ticket's copy, whose `partner` and `device` are set. A large one goes to the device
  /// at once; a small one waits until its group is full, its partner changes, or submit().
  /// Never throws errors of the device: a refused copy has its `error` set when it was submitted.
  void add(TicketState& state);

  /// Removes a copy from a group that is not queued yet, as if it had never been requested.
  void remove(TicketState& state) noexcept;

  /// Queues the open group.
  void submit();

  [[nodiscard]] Stream& stream() noexcept { return *stream_; }

 private:
  [[nodiscard]] Copy& copy_of(TicketState& state) const noexcept {
    return kind_ == CopyKind::kToHost ? state.out : state.back;
  }
  void queue_copies();
  void fail(const std::exception_ptr& error);
  [[nodiscard]] EventRef mark();

  EventPool* events_;
  EventPool* timed_events_;
  CopyKind kind_;
  Timing timing_;
  Bytes group_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> point_;  // What the group waits for; a queued wait keeps its old point.
  std::vector<TicketState*> members_;
  Bytes member_bytes_;
  std::vector<CopyItem> items_;
};

}  // namespace spillway::detail
