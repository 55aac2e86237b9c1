/// The policy of a step: when a buffer is copied out, released, prefetched, reloaded and used. A
/// session and the simulator of the planner run this machine, each on its own port.
///
/// Events come in as calls (offload, saved, begin_backward, make_available, prefetch, drop), and
/// commands go out to the port at once. What is released and prefetched follows from the list of
/// the pass, by position; where a pass has no list, from windows in bytes; and in both cases a cap
/// holds. So commands never depend on time, and a step repeats exactly.
///
/// A port has the types Buffer (from BufferRecord), WeakBuffer and Pass (from PassRecord), and:
///   Pass& pass_of(Buffer&)                  the pass that saved it
///   int number_of(const Pass&), item_of(const Buffer&)      for the log
///   X lock(const WeakBuffer&)               the buffer, or null if it was freed; X as a pointer
///   bool copy_out(Buffer&)                  false: there is no room, or it must not be moved
///   bool release(Buffer&)                   after its copy; false: it must not be moved
///   bool adopt(Buffer&)                     whether the program still has the original
///   void reload(Buffer&); bool prefetch(Buffer&)   false: there is no memory for it now
///   void wait(Buffer&, bool first)          for its copy back
///   void used_in_place(Buffer&), copy_skipped(Buffer&), late(Buffer&)
///   void gather(Buffer&)                    it is in parts, or its all-gather has begun
///   Pass* next_backward()                   whose backward is next, if its forward has run
///   void for_each_reload(Pass&, f)          f(Buffer&, WeakBuffer, rank), in the order backward
///                                           reads; rank: of Residency::reloads
///   X next_to_evict(Pass&)                  a buffer that was to stay, or null; X as a pointer
///   void evicted(Buffer&, bool)             whether it was released
///   void flush()                            queue what was grouped
///   void entered(Buffer&), left(Buffer&)    its bytes were added or taken away
///
/// Threads: one at a time. Errors: InvalidArgument for an event that is impossible in the buffer's
/// state, before the port has done anything; and those of the port. A buffer whose release failed
/// stays on the device, outside of the window; one whose other command failed is as it was. One
/// that dies without drop() leaves its bytes in on_device(), and nothing else.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <utility>

#include "engine/command_log.hpp"
#include "engine/records.hpp"
#include "engine/release_queue.hpp"

namespace spillway {

template <typename Port>
class StepMachine {
 public:
  using Buffer = typename Port::Buffer;
  using WeakBuffer = typename Port::WeakBuffer;
  using Pass = typename Port::Pass;

  explicit StepMachine(Port& port) : port_(port) {}

  void set_limits(const EngineLimits& limits) { limits_ = limits; }
  [[nodiscard]] const EngineLimits& limits() const noexcept { return limits_; }
  /// Writes commands to `log` from here on; null: no more.
  void log_to(CommandLog* log) noexcept { log_ = log; }

  /// Bytes of managed buffers on the device, and the most of them since reset_peak().
  [[nodiscard]] std::int64_t on_device() const noexcept { return on_device_; }
  [[nodiscard]] std::int64_t peak() const noexcept { return peak_; }
  void reset_peak() noexcept { peak_ = on_device_; }
  /// Of what belongs to no buffer: parts.
  void add_bytes(std::int64_t bytes) noexcept {
    on_device_ += bytes;
    peak_ = std::max(peak_, on_device_);
  }

  /// A buffer is on the device, and managed from here on.
  void enter(Buffer& buffer) {
    buffer.state = BufferState::kResident;
    add(buffer);
  }

  /// The plan offloads it: copies it out, or holds it back if its backward comes first.
  void offload(Buffer& buffer, WeakBuffer weak) {
    if (buffer.footprint == 0) return;  // Nothing would leave.
    const Pass& pass = port_.pass_of(buffer);
    if (pass.residency != nullptr && !pass.copies_all &&
        pass.residency->holds(port_.item_of(buffer))) {
      move(buffer, BufferEvent::kHold);
    } else if (!copy_out(buffer)) {
      return;
    }
    buffer.entry = window_.push(std::move(weak), buffer.footprint);
  }

  /// The pass has saved something, at the site or, if that is unknown, after it.
  void saved(Pass& pass, std::size_t site, const ByteLimit& limit = {}) {
    const bool listed = pass.residency != nullptr && site < pass.residency->pending.size();
    const std::int64_t most =
        listed ? pass.residency->pending[site] : std::numeric_limits<std::int64_t>::max();
    const std::int64_t window = listed ? EngineLimits::kNone : limits_.offload_window;
    const std::int64_t under_way = std::min(window, limit.under_way);
    const std::int64_t cap = limits_.cap_of(pass);
    const std::int64_t on_device = std::min(cap, limit.on_device);
    while (!window_.empty() &&
           (window_.count() > most || window_.bytes() > under_way || on_device_ > on_device)) {
      release_oldest();
    }
    while (on_device_ > cap) {
      const auto buffer = port_.next_to_evict(pass);
      if (!buffer) return;
      const bool gone = evict(*buffer);
      port_.evicted(*buffer, gone);
      if (!gone) return;
    }
  }

  /// Copies out and releases a buffer that was to stay. Returns whether it did.
  bool evict(Buffer& buffer) {
    if (!copy_out(buffer)) return false;
    try {
      return release(buffer);
    } catch (...) {
      move(buffer, BufferEvent::kTake);  // Its copy is there, and it is used in place.
      throw;
    }
  }

  /// Another forward runs before the next backward: what was held back is copied out.
  void copy_held() {
    if (held_ == 0) return;
    std::deque<WeakBuffer> held;  // The port may keep one instead, which changes the window.
    for (const Entry& each : window_.entries()) {
      const auto buffer = lock(each);
      if (buffer && buffer->state == BufferState::kHeld) held.push_back(each.buffer);
    }
    for (const WeakBuffer& each : held) {
      const auto buffer = port_.lock(each);
      if (buffer && buffer->state == BufferState::kHeld) (void)copy_out(*buffer);
    }
  }

  void begin_backward(Pass& pass) {
    pass.backward_begun = true;
    queue_reloads(pass);
  }

  /// Backward, or a replay in it, reads the buffer.
  void make_available(Buffer& buffer) {
    switch (buffer.state) {
      case BufferState::kInParts:
      case BufferState::kGathering:
        return port_.gather(buffer);
      case BufferState::kOffloaded:
        if (try_adopt(buffer)) return;
        port_.late(buffer);
        port_.reload(buffer);
        log(Command::kReload, buffer);
        arrive(buffer, BufferEvent::kReload);
        return wait(buffer);
      case BufferState::kReloading:
      case BufferState::kReloaded:
        return wait(buffer);
      case BufferState::kCopying:
      case BufferState::kInPlace:
        if (!std::exchange(buffer.read, true)) port_.used_in_place(buffer);
        [[fallthrough]];
      case BufferState::kResident:
      case BufferState::kHeld:
      case BufferState::kDiscarded:
      case BufferState::kFreed:
        return move(buffer, BufferEvent::kUse);
    }
  }

  /// If the program still has the original of a buffer that is not on the device, uses that.
  bool try_adopt(Buffer& buffer) {
    if (!port_.adopt(buffer)) return false;
    log(Command::kAdopt, buffer);
    // The port may have found that it must be kept.
    if (!is_on_device(buffer.state)) arrive(buffer, BufferEvent::kAdopt);
    return true;
  }

  /// Backward has read at index `unpack` in the order of unpacks: begins reloads in the order in
  /// which backward reads.
  void prefetch(Pass& pass, std::size_t unpack, const ByteLimit& limit = {}) {
    int next_until = 0;
    if (const Residency* const list = pass.residency; list != nullptr && !list->reloads.empty()) {
      const int until = list->reloads[std::min(unpack, list->reloads.size() - 1)];
      pass.reload_until = std::max(pass.reload_until, std::min(until, list->own_reloads));
      next_until = until - list->own_reloads;
    }
    const std::int64_t on_device = std::min(limits_.cap_of(pass), limit.on_device);
    const auto start = [&] { return start_reloads(on_device, limit.under_way); };
    Pass* const next = next_until > 0 || reloads_.empty() ? port_.next_backward() : nullptr;
    if (next != nullptr) next->reload_until = std::max(next->reload_until, next_until);
    bool any = start();
    if (reloads_.empty()) {
      if (Pass* const other = next != nullptr ? next : port_.next_backward()) {
        queue_reloads(*other);
        any = start() || any;
      }
    }
    if (!any) return;
    if (log_ != nullptr) log_->push_back({Command::kFlush});
    port_.flush();
  }

  /// How far reloads have come: the pass and the rank of the first one that has not begun; null:
  /// all that are queued have.
  [[nodiscard]] std::pair<Pass*, int> next_reload() {
    forget_settled_reloads();
    if (reloads_.empty()) return {nullptr, 0};
    const auto buffer = port_.lock(reloads_.front().buffer);
    return {&port_.pass_of(*buffer), reloads_.front().rank};
  }

  /// The buffer's memory was released: replays recompute it.
  void discard(Buffer& buffer) { leave(buffer, BufferEvent::kDiscard); }
  /// Operators are repeated for the buffer; what they read is available.
  void replay(Buffer& buffer) { log(Command::kReplay, buffer); }
  /// A replay, this one or one before, has made it.
  void recomputed(Buffer& buffer) {
    log(Command::kRecompute, buffer);
    arrive(buffer, BufferEvent::kRecompute);
  }

  /// All ranks have saved it, and this one has its part.
  void split(Buffer& buffer) { leave(buffer, BufferEvent::kSplit); }
  void gather_begins(Buffer& buffer, std::int64_t bytes) {
    buffer.footprint = bytes;
    arrive(buffer, BufferEvent::kGather);
  }
  void gathered(Buffer& buffer) { move(buffer, BufferEvent::kGathered); }

  /// The original stays on the device from here on, or is there again.
  void keep(Buffer& buffer) {
    if (is_in_window(buffer.state)) take_out(buffer);
    const bool was_there = is_on_device(buffer.state);
    move(buffer, BufferEvent::kKeep);
    if (!was_there) add(buffer);
  }

  /// Autograd drops it. Returns the state that it was in.
  BufferState drop(Buffer& buffer) {
    if (is_in_window(buffer.state)) take_out(buffer);
    if (std::exchange(buffer.prefetched, false)) prefetched_ -= buffer.footprint;
    const BufferState was = buffer.state;
    if (is_on_device(was)) {
      leave(buffer, BufferEvent::kFree);
    } else {
      move(buffer, BufferEvent::kFree);
    }
    return was;
  }

  /// Oldest first, as long as `look` says true.
  template <typename Look>
  void for_each_in_window(Look&& look) const {
    for (const Entry& each : window_.entries()) {
      const auto buffer = lock(each);
      if (buffer && !look(*buffer)) return;
    }
  }

  /// What waits for its release.
  [[nodiscard]] const ReleaseQueue<WeakBuffer>& window() const noexcept { return window_; }

  void log(Command command, const Pass& pass, int item) {
    if (log_ != nullptr) log_->push_back({command, port_.number_of(pass), item});
  }

 private:
  using Entry = typename ReleaseQueue<WeakBuffer>::Entry;
  struct Reload {
    WeakBuffer buffer;
    int rank = 0;
  };

  /// Null if it was taken out, or is gone.
  [[nodiscard]] auto lock(const Entry& entry) const {
    auto buffer = port_.lock(entry.buffer);
    if (entry.bytes == 0) buffer = nullptr;
    return buffer;
  }

  void log(Command command, Buffer& buffer) {
    if (log_ != nullptr) log(command, port_.pass_of(buffer), port_.item_of(buffer));
  }

  void move(Buffer& buffer, BufferEvent event) {
    const BufferState before = std::exchange(buffer.state, next_state(buffer.state, event));
    held_ += (buffer.state == BufferState::kHeld ? 1 : 0) - (before == BufferState::kHeld ? 1 : 0);
  }
  void add(Buffer& buffer) {
    add_bytes(buffer.footprint);
    port_.entered(buffer);
  }
  void arrive(Buffer& buffer, BufferEvent event) {
    move(buffer, event);
    add(buffer);
  }
  void leave(Buffer& buffer, BufferEvent event) {
    move(buffer, event);
    on_device_ -= buffer.footprint;
    port_.left(buffer);
  }

  /// What cannot happen is found before the port has done it.
  static void require(const Buffer& buffer, BufferEvent event) {
    (void)next_state(buffer.state, event);
  }

  bool copy_out(Buffer& buffer) {
    require(buffer, BufferEvent::kCopyOut);
    if (!port_.copy_out(buffer)) return false;
    log(Command::kCopyOut, buffer);
    move(buffer, BufferEvent::kCopyOut);
    return true;
  }

  bool release(Buffer& buffer) {
    require(buffer, BufferEvent::kRelease);
    if (!port_.release(buffer)) return false;
    log(Command::kRelease, buffer);
    leave(buffer, BufferEvent::kRelease);
    return true;
  }

  /// Precondition: the window has an entry.
  void release_oldest() {
    const Entry oldest = window_.pop();
    const auto buffer = lock(oldest);
    if (!buffer) return;
    buffer->entry = 0;
    try {
      release_from_window(*buffer);
    } catch (...) {
      // It stays on the device, and is used in place.
      if (is_in_window(buffer->state)) move(*buffer, BufferEvent::kTake);
      throw;
    }
  }

  void release_from_window(Buffer& buffer) {
    if (buffer.state == BufferState::kHeld) {
      // More is released than listed, so fewer copies can be skipped.
      port_.pass_of(buffer).copies_all = true;
      const bool copied = copy_out(buffer);
      copy_held();
      if (!copied) {
        if (buffer.state == BufferState::kHeld) move(buffer, BufferEvent::kTake);
        return;
      }
    }
    (void)release(buffer);
  }

  void take_out(Buffer& buffer) {
    if (const std::uint64_t number = std::exchange(buffer.entry, 0); number != 0) {
      window_.take_out(number);
    }
    move(buffer, BufferEvent::kTake);
  }

  void queue_reloads(Pass& pass) {
    if (std::exchange(pass.reloads_queued, true)) return;
    port_.for_each_reload(pass, [this](Buffer& buffer, WeakBuffer weak, int rank) {
      if (is_in_window(buffer.state)) {
        // Its backward begins before its release: it is used in place.
        if (buffer.state == BufferState::kHeld) port_.copy_skipped(buffer);
        take_out(buffer);
      } else if (buffer.state == BufferState::kOffloaded) {
        reloads_.push_back({std::move(weak), rank});
      }
    });
  }

  /// Those at the front that are freed, or on the device again.
  void forget_settled_reloads() {
    while (!reloads_.empty()) {
      const auto buffer = port_.lock(reloads_.front().buffer);
      if (buffer && buffer->state == BufferState::kOffloaded) return;
      reloads_.pop_front();
    }
  }

  [[nodiscard]] bool may_reload(const Buffer& buffer, int rank, std::int64_t on_device,
                                std::int64_t under_way) {
    const Pass& pass = port_.pass_of(buffer);
    const bool listed = pass.residency != nullptr && !pass.residency->reloads.empty();
    if (on_device_ + buffer.footprint > on_device) return false;
    if (listed && rank >= pass.reload_until) return false;
    const std::int64_t window = listed ? EngineLimits::kNone : limits_.prefetch_window;
    return prefetched_ == 0 || prefetched_ + buffer.footprint <= std::min(window, under_way);
  }

  bool start_reloads(std::int64_t on_device, std::int64_t under_way) {
    bool any = false;
    for (forget_settled_reloads(); !reloads_.empty(); forget_settled_reloads()) {
      const auto buffer = port_.lock(reloads_.front().buffer);
      if (!may_reload(*buffer, reloads_.front().rank, on_device, under_way)) break;
      reloads_.pop_front();
      if (try_adopt(*buffer)) continue;
      // Without memory it is reloaded when backward needs it: something else may be gone then.
      if (!port_.prefetch(*buffer)) return any;
      log(Command::kPrefetch, *buffer);
      arrive(*buffer, BufferEvent::kReload);
      buffer->prefetched = true;
      prefetched_ += buffer->footprint;
      any = true;
    }
    return any;
  }

  void wait(Buffer& buffer) {
    const bool first = buffer.state == BufferState::kReloading;
    if (first) log(Command::kWait, buffer);
    port_.wait(buffer, first);
    move(buffer, BufferEvent::kWait);
  }

  Port& port_;
  EngineLimits limits_;
  std::int64_t on_device_ = 0;
  std::int64_t peak_ = 0;
  ReleaseQueue<WeakBuffer> window_;
  int held_ = 0;                // Buffers that are held.
  std::deque<Reload> reloads_;  // Some may have been freed, or be on the device again.
  std::int64_t prefetched_ = 0;
  CommandLog* log_ = nullptr;
};

}  // namespace spillway
