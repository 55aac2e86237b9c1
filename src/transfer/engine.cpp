#include "spillway/transfer/engine.hpp"

#include <cassert>
#include <string>
#include <utility>

#include "spillway/core/error.hpp"

namespace spillway {

TransferEngine::TransferEngine(Device& device, Tier& tier, EngineOptions options)
    : device_(&device),
      tier_(&tier),
      options_(options),
      events_(device, options.timing),
      point_(device.make_event(Timing::kOff)),
      out_(device.make_stream("copy out")),
      back_(device.make_stream("copy back")) {
  if (options_.timing == Timing::kOn) {
    epoch_ = mark(*out_);
    epoch_->synchronize();
  }
  epoch_time_ = clock_.now();
}

TransferEngine::~TransferEngine() {
  assert(totals_.live == 0 && "a ticket outlives its engine");
  for (Stream* stream : {out_.get(), back_.get()}) {
    try {
      stream->synchronize();
    } catch (const Error&) {
      // The streams that waited for the failed copy have the error too and throw it.
    }
  }
}

std::optional<Ticket> TransferEngine::offload(std::span<const std::byte> source,
                                              Stream& producer) {
  if (source.empty()) throw InvalidArgument("offload", "the source has 0 bytes; keep it instead");
  const std::lock_guard lock(mutex_);
  throw_deferred();
  std::optional<Lease> lease = tier_->allocate(Bytes(source.size()));
  if (!lease) {
    ++totals_.no_room;
    return std::nullopt;
  }
  detail::TicketState& state = new_state();
  state.lease = std::move(*lease);
  state.size = Bytes(source.size());
  state.producer = &producer;
  try {
    start_copy_out(state, source, producer);
  } catch (...) {
    state = {};
    idle_states_.push_back(&state);
    throw;
  }
  state.id = totals_.offloads++;
  totals_.bytes_out += state.size;
  ++totals_.live;
  return Ticket(*this, state);
}

void TransferEngine::start_copy_out(detail::TicketState& state, std::span<const std::byte> source,
                                    Stream& producer) {
  producer.record(*point_);
  out_->wait(*point_);
  state.lease.acquire(*out_);
  try {
    state.out_times.queued = clock_.now() - epoch_time_;
    state.out_times.started = mark_if_timed(*out_);
    state.lease.for_each_piece([&](std::byte* host, std::uint64_t offset, Bytes size) {
      out_->copy(host, source.data() + offset, size, CopyKind::kToHost);
    });
    state.stored = mark(*out_);
  } catch (...) {
    // A part of the copy may run. The block must not be written by others before that, nor the
    // source be overwritten by a caller who sees the exception.
    try {
      EventRef last = mark(*out_);
      producer.wait(*last);
      state.lease.retire(std::move(last));
    } catch (const Error&) {
      state.lease.abandon();
    }
    throw;
  }
}

void TransferEngine::release(Ticket& ticket, Stream& consumer) {
  const std::lock_guard lock(mutex_);
  detail::TicketState& state = *ticket.state_;
  wait_for(consumer, state.stored, state.out_times);
  state.released = true;
}

void TransferEngine::reload(Ticket& ticket, std::span<std::byte> destination, Stream& consumer) {
  const std::lock_guard lock(mutex_);
  throw_deferred();
  detail::TicketState& state = *ticket.state_;
  if (Bytes(destination.size()) != state.size) {
    throw InvalidArgument("reload", "a destination of " + std::to_string(destination.size()) +
                                        " bytes was given for a buffer of " +
                                        std::to_string(state.size.count()) +
                                        "; give one of exactly that size");
  }
  start_copy_back(state, destination, consumer);
  ++totals_.reloads;
  totals_.bytes_back += state.size;
}

void TransferEngine::start_copy_back(detail::TicketState& state, std::span<std::byte> destination,
                                     Stream& consumer) {
  // An earlier copy back that nobody waited for still writes into its own destination.
  if (state.loaded != nullptr && !state.ready) state.consumer->wait(*state.loaded);
  consumer.record(*point_);
  back_->wait(*point_);
  back_->wait(*state.stored);
  detail::CopyTimes times;
  times.queued = clock_.now() - epoch_time_;
  times.started = mark_if_timed(*back_);
  bool queued = false;
  try {
    state.lease.for_each_piece([&](std::byte* host, std::uint64_t offset, Bytes size) {
      back_->copy(destination.data() + offset, host, size, CopyKind::kToDevice);
      queued = true;
    });
    state.loaded = mark(*back_);
  } catch (...) {
    if (queued) {
      // What was queued still reads the block and writes the destination.
      state.loaded = mark(*back_);
      consumer.wait(*state.loaded);
      state.consumer = &consumer;
      state.ready = true;
    }
    throw;
  }
  state.consumer = &consumer;
  state.ready = false;
  state.back_times = std::move(times);
}

void TransferEngine::ready(Ticket& ticket, Stream& consumer) {
  const std::lock_guard lock(mutex_);
  detail::TicketState& state = *ticket.state_;
  if (state.loaded == nullptr) {
    throw InvalidArgument("ready", "the buffer was not reloaded; call reload() first");
  }
  wait_for(consumer, state.loaded, state.back_times);
  state.ready = state.ready || &consumer == state.consumer;
}

void TransferEngine::wait_for(Stream& waiter, const EventRef& event, detail::CopyTimes& times) {
  times.wait_begin = mark_if_timed(waiter);
  waiter.wait(*event);
  times.wait_end = mark_if_timed(waiter);
}

EventRef TransferEngine::mark(Stream& stream) {
  EventRef event = events_.take();
  stream.record(*event);
  return event;
}

EventRef TransferEngine::mark_if_timed(Stream& stream) {
  return options_.timing == Timing::kOn ? mark(stream) : nullptr;
}

void TransferEngine::cancel(detail::TicketState& state) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    if (!state.released) wait_for(*state.producer, state.stored, state.out_times);
    if (state.loaded != nullptr && !state.ready) {
      wait_for(*state.consumer, state.loaded, state.back_times);
    }
  } catch (...) {
    deferred_ = std::current_exception();
  }
  if (state.loaded == nullptr) ++totals_.cancelled;
  --totals_.live;
  keep_record(state);
  // The copy back waited for the copy out, so its end is the block's last use.
  state.lease.retire(state.loaded != nullptr ? state.loaded : state.stored);
  state = {};
  idle_states_.push_back(&state);
}

void TransferEngine::throw_deferred() {
  if (deferred_ == nullptr) return;
  std::rethrow_exception(std::exchange(deferred_, nullptr));
}

detail::TicketState& TransferEngine::new_state() {
  if (idle_states_.empty()) {
    states_.emplace_back();
    idle_states_.reserve(states_.size());  // Giving one back must not throw.
    return states_.back();
  }
  detail::TicketState& state = *idle_states_.back();
  idle_states_.pop_back();
  return state;
}

TransferTotals TransferEngine::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

}  // namespace spillway
