#include "copy_lane.hpp"

#include <algorithm>
#include <utility>

namespace spillway::detail {
namespace {

// A batch of 16 costs the host 0.7 us a copy instead of 1.9; more brings little.
constexpr std::size_t kMostCopies = 16;

}  // namespace

CopyLane::CopyLane(Device& device, EventPool& events, EventPool& timed_events, CopyKind kind,
                   Timing timing, Bytes group)
    : events_(&events),
      timed_events_(&timed_events),
      kind_(kind),
      timing_(timing),
      group_(group),
      stream_(device.make_stream(kind == CopyKind::kToHost ? "copy out" : "copy back")),
      point_(device.make_event(Timing::kOff)) {}

void CopyLane::add(TicketState& state) {
  Copy& copy = copy_of(state);
  const bool small = state.size * 2 <= group_;
  if (!members_.empty() && (!small || copy_of(*members_.front()).partner != copy.partner)) submit();
  try {
    // The group waits for the latest point, which lies behind those of the members before.
    copy.partner->record(*point_);
  } catch (...) {
    copy.error = std::current_exception();
    return;
  }
  copy.waiting = true;
  members_.push_back(&state);
  member_bytes_ += state.size;
  if (!small || member_bytes_ >= group_ || members_.size() == kMostCopies) submit();
}

void CopyLane::remove(TicketState& state) noexcept {
  std::erase(members_, &state);
  member_bytes_ -= state.size;
  copy_of(state).waiting = false;
}

void CopyLane::submit() {
  if (members_.empty()) return;
  try {
    queue_copies();
  } catch (...) {
    fail(std::current_exception());
  }
  for (TicketState* member : members_) copy_of(*member).waiting = false;
  members_.clear();
  member_bytes_ = Bytes(0);
}

void CopyLane::queue_copies() {
  stream_->wait(*point_);
  items_.clear();
  for (TicketState* member : members_) {
    if (kind_ == CopyKind::kToHost) {
      member->lease.acquire(*stream_);
    } else if (!member->back.out_implied) {
      stream_->wait(*member->out.done);
    }
    std::byte* const device = copy_of(*member).device;
    member->lease.for_each_piece([&](std::byte* host, std::uint64_t offset, Bytes size) {
      if (kind_ == CopyKind::kToHost) {
        items_.push_back({host, device + offset, size});
      } else {
        items_.push_back({device + offset, host, size});
      }
    });
  }
  const EventRef started = timing_ == Timing::kOn ? mark() : nullptr;
  stream_->copy_batch(items_, kind_);
  const EventRef done = mark();
  for (TicketState* member : members_) {
    copy_of(*member).done = done;
    copy_of(*member).times.started = started;
  }
}

void CopyLane::fail(const std::exception_ptr& error) {
  // Some of the copies may run. Their blocks must not be written by others before that, nor their
  // device memory be used again: so they have an end to wait for like those that succeeded.
  EventRef end;
  try {
    end = mark();
  } catch (...) {
    // Then nothing says when they end, and the blocks are never handed out again.
  }
  for (TicketState* member : members_) {
    Copy& copy = copy_of(*member);
    copy.error = error;
    copy.done = end;
    copy.lost = end == nullptr;
    copy.times.started = nullptr;
  }
}

EventRef CopyLane::mark() {
  EventRef event = (timing_ == Timing::kOn ? timed_events_ : events_)->take();
  stream_->record(*event);
  return event;
}

}  // namespace spillway::detail
