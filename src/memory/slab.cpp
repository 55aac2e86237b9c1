#include "spillway/memory/slab.hpp"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "spillway/core/error.hpp"
#include "spillway/memory/host_system.hpp"

namespace spillway {
namespace {

SlabOptions checked(SlabOptions options) {
  if (options.capacity == Bytes(0)) {
    throw InvalidArgument(
        "slab",
        "a capacity of 0 bytes was asked for; give the host memory that offloaded "
        "buffers may take, such as \"64 GiB\"");
  }
  if (options.chunk == Bytes(0) || options.chunk.count() % kHugePage.count() != 0) {
    throw InvalidArgument("slab", "chunks of " + to_string(options.chunk) +
                                      " were asked for; a chunk is a multiple of 2 MiB");
  }
  if (const Bytes total = total_host_memory(); options.capacity > total) {
    throw OutOfMemory("slab", to_string(options.capacity) + " of host memory wanted, " +
                                  to_string(total) + " is all there is; lower the host limit");
  }
  return options;
}

}  // namespace

Slab::Slab(Device& device, SlabOptions options)
    : device_(&device),
      options_(checked(options)),
      range_(options_.capacity),
      allocator_(options_.capacity),
      thread_([this] { work(); }) {
  prepare(options_.prepare);
}

Slab::~Slab() {
  if (!thread_.in_its_process()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_->notify_one();
  thread_->join();
}

std::optional<Lease> Slab::allocate(Bytes size) {
  if (std::optional<Block> block = take(size)) return Lease(*this, std::move(*block));
  return std::nullopt;
}

std::optional<Block> Slab::take(Bytes size) {
  std::unique_lock lock(mutex_);
  Block block;
  const std::optional<Extent> extent = allocator_->allocate(size, &block.pending);
  if (!extent) return std::nullopt;
  block.data = range_.data() + extent->offset;
  block.size = size;
  block.node = extent->node;
  block.chunks = range_.data();
  block.chunk = options_.chunk;
  want(end_for(Bytes(extent->end())));
  if (Bytes(extent->end()) > pinned_ && !wait_until_pinned(lock, Bytes(extent->end()))) {
    // Part of it may lie in pinned chunks that somebody still uses.
    allocator_->free(*extent, std::move(block.pending));
    return std::nullopt;
  }
  peak_ = std::max(peak_, allocator_->used());
  return block;
}

void Slab::put(Block block) noexcept {
  if (!thread_.in_its_process()) return;
  const std::lock_guard lock(mutex_);
  const Extent extent{static_cast<std::uint64_t>(block.data - range_.data()),
                      round_up(std::max(block.size, Bytes(1)), kBlockAlignment).count(),
                      block.node};
  try {
    allocator_->free(extent, std::move(block.pending));
  } catch (const std::bad_alloc&) {
    // Without memory for its bookkeeping the block is never handed out again.
  }
}

void Slab::prepare(Bytes size) {
  const std::lock_guard lock(mutex_);
  want(size);
}

/// Half a chunk ahead, so that the next allocations find their chunk ready.
Bytes Slab::end_for(Bytes blocks) const { return blocks + Bytes(options_.chunk.count() / 2); }

void Slab::want(Bytes end) {
  end = std::min(round_up(end, options_.chunk), range_.size());
  if (end <= wanted_) return;
  wanted_ = end;
  work_->notify_one();
}

void Slab::trim(Bytes keep) {
  std::unique_lock lock(mutex_);
  const Bytes least = std::max(std::min(keep, range_.size()), allocator_->frontier());
  const Bytes end = least == Bytes(0) ? least : round_up(end_for(least), options_.chunk);
  if (end >= wanted_) return;
  wanted_ = end;
  if (state_ != State::kPinning && wanted_ <= pinned_) recover();
  work_->notify_one();
  pinned_changed_->wait(lock, [this] { return !working_ && !has_excess(); });
}

Bytes Slab::take_reach() {
  const std::lock_guard lock(mutex_);
  return allocator_->take_reach();
}

void Slab::retry() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kFailed || --calls_to_retry_ > 0) return;
  state_ = State::kRetrying;
  work_->notify_one();
}

void Slab::recover() {
  state_ = State::kPinning;
  failure_ = nullptr;
  allocator_->set_capacity(options_.capacity);
}

void Slab::wait_until_prepared() {
  std::unique_lock lock(mutex_);
  pinned_changed_->wait(lock, [this] {
    const bool done = pinned_ == wanted_ && !has_excess();
    return !working_ && (done || state_ == State::kFailed);
  });
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

bool Slab::wait_until_pinned(std::unique_lock<std::mutex>& lock, Bytes end) {
  ++warm_up_waits_;
  pinned_changed_->wait(lock, [&] { return pinned_ >= end || state_ == State::kFailed; });
  return pinned_ >= end;
}

void Slab::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_->wait(lock, [this] {
      return stop_ || has_excess() || (pinned_ < wanted_ && state_ != State::kFailed);
    });
    if (stop_) break;
    working_ = true;
    if (has_excess()) {
      release_excess(lock);
    } else {
      pin_next(lock);
    }
    working_ = false;
    pinned_changed_->notify_all();
  }
  lock.unlock();
  (void)ahead_->wait();
}

bool Slab::has_excess() const {
  return pinned_ > wanted_ || ahead_->reach() > std::max(pinned_, wanted_);
}

void Slab::release_excess(std::unique_lock<std::mutex>& lock) {
  const Bytes to = pinned_;
  const bool registered = pinned_ > wanted_;
  const Bytes from = registered
                         ? Bytes((to.count() - 1) / options_.chunk.count() * options_.chunk.count())
                         : wanted_;
  EventList users;
  if (registered) {
    users = allocator_->last_users_beyond(from);
    pinned_ = from;  // From here on whoever is handed a block there waits.
    releasing_ = to - from;
  }
  lock.unlock();
  bool done = true;
  try {
    for (const EventRef& event : users) event->synchronize();
  } catch (const Error&) {
    done = false;  // Of a failed device nobody knows what it still reads.
  }
  if (done) {
    if (registered) registrations_->pop_back();
    ahead_->cut(range_, from);
    if (registered) range_.decommit(from, to);
  }
  lock.lock();
  releasing_ = {};
  if (done) return;
  pinned_ = to;
  wanted_ = std::max(wanted_, to);
}

void Slab::pin_next(std::unique_lock<std::mutex>& lock) {
  const SteadyClock clock;
  const Bytes from = pinned_;
  const Bytes to = std::min(from + options_.chunk, range_.size());
  // What is tried again may fail again.
  const bool more = wanted_ > to && state_ == State::kPinning;
  const Bytes next = more ? std::min(to + options_.chunk, range_.size()) : to;
  lock.unlock();
  std::exception_ptr failure;
  const Nanoseconds begin = clock.now();
  try {
    pin_chunk(from, to, next);
  } catch (...) {
    failure = std::current_exception();
    ahead_->cut(range_, from);
  }
  lock.lock();
  pinning_time_ += clock.now() - begin;
  if (failure == nullptr) {
    pinned_ = to;
    if (state_ == State::kRetrying) recover();
    if (pinned_ >= wanted_) calls_between_retries_ = 1;
    return;
  }
  state_ = State::kFailed;
  failure_ = failure;
  allocator_->set_capacity(pinned_);
  calls_to_retry_ = calls_between_retries_;
  calls_between_retries_ = std::min(2 * calls_between_retries_, kMostCallsBetweenRetries);
}

void Slab::pin_chunk(Bytes from, Bytes to, Bytes next) {
  if (const std::exception_ptr error = ahead_->wait()) std::rethrow_exception(error);
  const std::optional<int> node = device_->numa_node();
  if (ahead_->end() < to) (void)range_.commit(from, to, node);
  // Touching keeps the processor busy, registering the driver: so they run side by side.
  if (next > to) ahead_->start(range_, to, next, node);
  try {
    registrations_->push_back(
        device_->register_host({range_.data() + from.count(), (to - from).count()}));
  } catch (const Error& cause) {
    (void)ahead_->wait();
    range_.decommit(from, to);
    const std::optional<Bytes> limit = lock_limit();
    throw OutOfMemory("slab", "cannot pin " + to_string(to - from) +
                                  " of host memory after the first " + to_string(from) + ": " +
                                  cause.what() + "; " +
                                  (limit ? "this process may lock " + to_string(*limit) +
                                               ": raise that (ulimit -l) or lower the host limit"
                                         : "lower the host limit or close other programs"));
  }
}

std::string Slab::problem() const {
  std::exception_ptr failure;
  {
    const std::lock_guard lock(mutex_);
    failure = failure_;
  }
  if (failure == nullptr) return {};
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  }
}

SlabUsage Slab::usage() const {
  const std::lock_guard lock(mutex_);
  SlabUsage usage;
  usage.capacity = allocator_->capacity();
  usage.used = allocator_->used();
  usage.peak = peak_;
  usage.footprint = allocator_->footprint();
  usage.pinned = pinned_ + releasing_;
  usage.holes = allocator_->holes();
  usage.warm_up_waits = warm_up_waits_;
  usage.pinning_time = pinning_time_;
  return usage;
}

}  // namespace spillway
