#include "spillway/transfer/engine.hpp"

#include <cassert>
#include <new>
#include <string>
#include <utility>

#include "copy_lane.hpp"
#include "pending_record.hpp"
#include "spillway/core/error.hpp"
#include "ticket_states.hpp"

namespace spillway {

using detail::Copy;
using detail::CopyLane;
using detail::TicketState;

TransferEngine::TransferEngine(Device& device, Tier& tier, EngineOptions options)
    : tier_(&tier),
      options_(options),
      events_(device, Timing::kOff),
      timed_events_(device, Timing::kOn),
      out_(std::make_unique<CopyLane>(device, events_, timed_events_, CopyKind::kToHost,
                                      options.timing, options.group)),
      back_(std::make_unique<CopyLane>(device, events_, timed_events_, CopyKind::kToDevice,
                                       options.timing, options.group)),
      states_(std::make_unique<detail::TicketStates>()) {
  if (options_.timing == Timing::kOn) {
    epoch_ = mark_if_timed(out_->stream());
    epoch_->synchronize();
  }
  epoch_time_ = clock_.now();
}

TransferEngine::~TransferEngine() {
  assert(totals_.live == 0 && "a ticket outlives its engine");
  for (CopyLane* lane : {out_.get(), back_.get()}) {
    try {
      lane->stream().synchronize();
    } catch (const Error&) {
      // The streams that waited for the failed copy have the error too and throw it.
    }
  }
}

std::optional<Ticket> TransferEngine::offload(std::span<const std::byte> source, Stream& producer) {
  if (source.empty()) throw InvalidArgument("offload", "the source has 0 bytes; keep it instead");
  const std::lock_guard lock(mutex_);
  throw_deferred();
  std::optional<Lease> lease = tier_->allocate(Bytes(source.size()));
  if (!lease) {
    ++totals_.no_room;
    return std::nullopt;
  }
  TicketState& state = states_->take();
  state.id = totals_.offloads;
  state.size = Bytes(source.size());
  state.lease = std::move(*lease);
  state.out.partner = &producer;
  state.out.device = const_cast<std::byte*>(source.data());  // A copy out only reads it.
  state.out.times.queued = clock_.now() - epoch_time_;
  out_->add(state);
  if (const std::exception_ptr error = state.out.error) {
    give_up(state);
    std::rethrow_exception(error);
  }
  ++totals_.offloads;
  ++totals_.live;
  totals_.bytes_out += state.size;
  return Ticket(*this, state);
}

void TransferEngine::release(Ticket& ticket, Stream& consumer) {
  const std::lock_guard lock(mutex_);
  TicketState& state = *ticket.state_;
  if (state.out.waiting) out_->submit();
  throw_if_refused(state.out);
  wait_for(consumer, state.out.done, state.out.times);
  state.out.settled = true;
  state.out.waited_by = &consumer;
  state.released = true;
}

void TransferEngine::reload(Ticket& ticket, std::span<std::byte> destination, Stream& consumer) {
  const std::lock_guard lock(mutex_);
  throw_deferred();
  TicketState& state = *ticket.state_;
  if (Bytes(destination.size()) != state.size) {
    throw InvalidArgument("reload", "a destination of " + std::to_string(destination.size()) +
                                        " bytes was given for a buffer of " +
                                        std::to_string(state.size.count()) +
                                        "; give one of exactly that size");
  }
  if (state.out.waiting) out_->submit();
  throw_if_refused(state.out);
  // An earlier copy back without a wait still writes into its own destination.
  if (state.back.waiting) back_->submit();
  if (state.back.done != nullptr && !state.back.settled) state.back.partner->wait(*state.back.done);
  if (state.back.done != nullptr) state.earlier_back = state.back.done;
  state.back = Copy{};
  state.back.partner = &consumer;
  state.back.device = destination.data();
  state.back.out_implied = state.out.waited_by == &consumer;
  state.back.times.queued = clock_.now() - epoch_time_;
  state.reloading = true;
  back_->add(state);
  throw_if_refused(state.back);
  ++totals_.reloads;
  totals_.bytes_back += state.size;
}

void TransferEngine::ready(Ticket& ticket, Stream& consumer) {
  const std::lock_guard lock(mutex_);
  TicketState& state = *ticket.state_;
  if (!state.reloading) {
    throw InvalidArgument("ready", "the buffer was not reloaded; call reload() first");
  }
  if (state.back.waiting) back_->submit();
  throw_if_refused(state.back);
  wait_for(consumer, state.back.done, state.back.times);
  state.back.settled = state.back.settled || &consumer == state.back.partner;
}

void TransferEngine::throw_if_refused(Copy& copy) {
  if (copy.error == nullptr) return;
  // A part of it may run: the partner's stream waits for that before it uses the memory again.
  if (copy.done != nullptr && !copy.settled) copy.partner->wait(*copy.done);
  copy.settled = true;
  std::rethrow_exception(copy.error);
}

void TransferEngine::flush() {
  const std::lock_guard lock(mutex_);
  out_->submit();
  back_->submit();
}

void TransferEngine::wait_for(Stream& waiter, const EventRef& event, detail::CopyTimes& times) {
  times.wait_begin = mark_if_timed(waiter);
  waiter.wait(*event);
  times.wait_end = mark_if_timed(waiter);
}

EventRef TransferEngine::mark_if_timed(Stream& stream) {
  if (options_.timing == Timing::kOff) return nullptr;
  EventRef event = timed_events_.take();
  stream.record(*event);
  return event;
}

void TransferEngine::start_timing(EventRef epoch) {
  const std::lock_guard lock(mutex_);
  records_.clear();
  epoch_ = std::move(epoch);
  epoch_time_ = clock_.now();
  options_.timing = Timing::kOn;
  out_->set_timing(Timing::kOn);
  back_->set_timing(Timing::kOn);
}

void TransferEngine::stop_timing() {
  const std::lock_guard lock(mutex_);
  options_.timing = Timing::kOff;
  out_->set_timing(Timing::kOff);
  back_->set_timing(Timing::kOff);
}

void TransferEngine::cancel(TicketState& state) noexcept {
  const std::lock_guard lock(mutex_);
  if (!state.reloading) ++totals_.cancelled;
  --totals_.live;
  give_up(state);
}

void TransferEngine::give_up(TicketState& state) noexcept {
  // A copy in an open group need not run any more.
  if (state.out.waiting) out_->remove(state);
  if (state.back.waiting) back_->remove(state);
  try {
    for (Copy* copy : {&state.out, &state.back}) {
      if (copy->done != nullptr && !copy->settled) {
        wait_for(*copy->partner, copy->done, copy->times);
      }
    }
  } catch (...) {
    deferred_ = std::current_exception();
  }
  try {
    keep_record(state);
  } catch (const std::bad_alloc&) {
    // The trace lacks a copy.
  }
  // A copy back waited for the copy out and for those before it, so its end is the last use.
  const EventRef& last = state.back.done != nullptr      ? state.back.done
                         : state.earlier_back != nullptr ? state.earlier_back
                                                         : state.out.done;
  if (state.out.lost || state.back.lost) {
    state.lease.abandon();
  } else if (last != nullptr) {
    state.lease.retire(last);
  }
  states_->give_back(state);
}

void TransferEngine::throw_deferred() {
  if (deferred_ == nullptr) return;
  std::rethrow_exception(std::exchange(deferred_, nullptr));
}

TransferTotals TransferEngine::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

}  // namespace spillway
