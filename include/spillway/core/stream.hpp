/// A queue of device work that runs in order. Semantics are CUDA's: every call here only queues and
/// returns, unless it says otherwise.
///
/// Threads: one thread at a time may call into one stream; different streams are independent.
/// Lifetime: a stream must not outlive its device. Destroying a stream lets its queued work finish.
/// Errors: an operation that fails when it runs fails the stream: what follows on this stream is
/// skipped, its events carry the error, streams that wait for those events fail too, and the next
/// synchronize() on any of them throws it by the operation's name. (A CUDA device that has failed
/// stays failed; a host stream works again after its synchronize() has thrown.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/core/event.hpp"

namespace spillway {

enum class CopyKind { kToHost, kToDevice, kOnDevice };

struct CopyItem {
  void* to = nullptr;
  const void* from = nullptr;
  Bytes size;
};

class Stream {
 public:
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;

  /// Queues a copy. Both ranges must stay valid, and the source unmodified, until it has run. To be
  /// asynchronous on CUDA the host side must lie within one registered range.
  /// Errors: InvalidArgument for a null pointer; nothing is queued then. Zero bytes queue nothing.
  void copy(void* to, const void* from, Bytes size, CopyKind kind);

  /// Queues several copies of one kind at the cost of little more than one. They may run in any
  /// order among themselves, so none may write what another one reads or writes.
  /// Errors: as copy(). If the device refuses, some of the copies may have been queued.
  void copy_batch(std::span<const CopyItem> items, CopyKind kind);

  /// Queues setting every byte of a range of device memory to `value`.
  /// Errors: as copy().
  void fill(void* to, std::byte value, Bytes size);

  /// Queues a call on a thread of the device's choosing. `function` must not call into the device.
  /// What it throws becomes this stream's error, named `operation`.
  void call(std::string operation, std::function<void()> function);

  /// Makes `event` the present end of this stream's queue.
  void record(Event& event);

  /// Makes everything queued here from now on wait for `event` as it is recorded now. The host does
  /// not wait. A wait that is already implied (the event was never recorded, was recorded by this
  /// stream, or lies before one already waited for) queues nothing.
  /// Precondition: the event comes from this stream's device.
  void wait(const Event& event);

  /// True when nothing is queued or running. Never blocks.
  [[nodiscard]] virtual bool query() const = 0;

  /// Blocks the host until everything queued so far is done.
  /// Errors: DeviceError of the first operation that failed.
  virtual void synchronize() = 0;

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }

 protected:
  /// `id` is unique among the streams of one device.
  explicit Stream(std::uint64_t id) noexcept : id_(id) {}

  virtual void do_copy(void* to, const void* from, Bytes size, CopyKind kind) = 0;
  /// `items` are checked and not empty. As it is here: one do_copy() after the other.
  virtual void do_copy_batch(std::span<const CopyItem> items, CopyKind kind);
  virtual void do_fill(void* to, std::byte value, Bytes size) = 0;
  virtual void do_call(std::string operation, std::function<void()> function) = 0;
  virtual void do_record(Event& event) = 0;
  virtual void do_wait(const Event& event) = 0;

 private:
  [[nodiscard]] StreamPoint& latest_wait_on(std::uint64_t stream);

  std::uint64_t id_;
  std::uint64_t records_ = 0;
  std::vector<StreamPoint> waited_;  // The latest point waited for, one entry a stream.
};

}  // namespace spillway
