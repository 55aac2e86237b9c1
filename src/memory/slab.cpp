#include "spillway/memory/slab.hpp"

#include <algorithm>
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
      thread_([this] { pin_chunks(); }) {
  prepare(options_.prepare);
}

Slab::~Slab() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_one();
  thread_.join();
}

std::optional<Lease> Slab::allocate(Bytes size) {
  if (std::optional<Block> block = take(size)) return Lease(*this, std::move(*block));
  return std::nullopt;
}

std::optional<Block> Slab::take(Bytes size) {
  std::unique_lock lock(mutex_);
  Block block;
  const std::optional<Extent> extent = allocator_.allocate(size, &block.pending);
  if (!extent) return std::nullopt;
  block.data = range_.data() + extent->offset;
  block.size = size;
  block.node = extent->node;
  block.chunks = range_.data();
  block.chunk = options_.chunk;
  // Half a chunk ahead, so that the next allocations find their chunk ready.
  want(Bytes(extent->end() + options_.chunk.count() / 2));
  if (Bytes(extent->end()) > pinned_ && !wait_until_pinned(lock, Bytes(extent->end()))) {
    allocator_.free(*extent);
    return std::nullopt;
  }
  peak_ = std::max(peak_, allocator_.used());
  return block;
}

void Slab::put(Block block) noexcept {
  const std::lock_guard lock(mutex_);
  const Extent extent{static_cast<std::uint64_t>(block.data - range_.data()),
                      round_up(std::max(block.size, Bytes(1)), kBlockAlignment).count(),
                      block.node};
  allocator_.free(extent, std::move(block.pending));
}

void Slab::prepare(Bytes size) {
  const std::lock_guard lock(mutex_);
  want(size);
}

void Slab::want(Bytes end) {
  end = std::min(round_up(end, options_.chunk), range_.size());
  if (end <= wanted_) return;
  wanted_ = end;
  work_.notify_one();
}

void Slab::wait_until_prepared() {
  std::unique_lock lock(mutex_);
  pinned_changed_.wait(lock, [this] { return pinned_ >= wanted_ || failure_ != nullptr; });
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

bool Slab::wait_until_pinned(std::unique_lock<std::mutex>& lock, Bytes end) {
  ++warm_up_waits_;
  pinned_changed_.wait(lock, [&] { return pinned_ >= end || failure_ != nullptr; });
  return pinned_ >= end;
}

void Slab::pin_chunks() {
  const SteadyClock clock;
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stop_ || (pinned_ < wanted_ && failure_ == nullptr); });
    if (stop_) break;
    const Bytes from = pinned_;
    const Bytes to = std::min(from + options_.chunk, range_.size());
    const Bytes next = wanted_ > to ? std::min(to + options_.chunk, range_.size()) : to;
    lock.unlock();
    std::exception_ptr failure;
    const Nanoseconds begin = clock.now();
    try {
      pin_chunk(from, to, next);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    pinning_time_ += clock.now() - begin;
    if (failure == nullptr) {
      pinned_ = to;
    } else {
      failure_ = failure;
      allocator_.shrink(pinned_);
    }
    pinned_changed_.notify_all();
  }
  lock.unlock();
  (void)ahead_.wait();
}

void Slab::pin_chunk(Bytes from, Bytes to, Bytes next) {
  if (const std::exception_ptr error = ahead_.wait()) std::rethrow_exception(error);
  const std::optional<int> node = device_->numa_node();
  if (ahead_.end() < to) (void)range_.commit(from, to, node);
  // Touching keeps the processor busy, registering the driver: so they run side by side.
  if (next > to) ahead_.start(range_, to, next, node);
  try {
    registrations_.push_back(
        device_->register_host({range_.data() + from.count(), (to - from).count()}));
  } catch (const Error& cause) {
    (void)ahead_.wait();
    range_.decommit(from, std::max(to, ahead_.end()));
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
  usage.capacity = allocator_.capacity();
  usage.used = allocator_.used();
  usage.peak = peak_;
  usage.footprint = allocator_.footprint();
  usage.pinned = pinned_;
  usage.holes = allocator_.holes();
  usage.warm_up_waits = warm_up_waits_;
  usage.pinning_time = pinning_time_;
  return usage;
}

}  // namespace spillway
