/// The device whose tensors a session manages, as torch knows it and as the engine does; internal.
/// All calls but the constructor are made under the session's lock, on the thread that runs the
/// forward or backward in question.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include "spillway/core/bytes.hpp"
#include "spillway/core/clock.hpp"
#include "spillway/core/device.hpp"
#include "spillway/memory/slab.hpp"
#include "torch/device/byte_range.hpp"
#include "torch/device/chain_runner.hpp"
#include "torch/device/memory_hold.hpp"

namespace spillway {

/// A moment on the device's clock; resolved by TorchDevice::elapsed().
struct TimeMark {
  EventRef event;  // Null where operators run on the calling thread.
  Nanoseconds host{};
};

class TorchDevice {
 public:
  TorchDevice() = default;
  TorchDevice(const TorchDevice&) = delete;
  TorchDevice& operator=(const TorchDevice&) = delete;
  virtual ~TorchDevice() = default;

  [[nodiscard]] virtual at::Device torch_device() const = 0;
  [[nodiscard]] virtual Device& device() = 0;

  /// Whether what this thread queues now becomes part of a CUDA graph and does not run. Then
  /// nothing else here may be called. Not under the session's lock.
  [[nodiscard]] virtual bool is_capturing() const { return false; }

  /// The stream on which this thread's operators run now. Lives as long as this.
  [[nodiscard]] virtual Stream& current_stream() = 0;

  /// Where operators do not run on a stream but on the calling thread, that thread has to wait for
  /// what `stream` waits for, before it frees or reads memory.
  virtual void catch_up(Stream& stream) = 0;

  /// Keeps the memory that `storage` has now readable, even if its owner gives it back. Empty where
  /// that cannot be: on CUDA such memory stays readable by itself, with other content; elsewhere a
  /// copy from it must be complete before the owner runs again.
  [[nodiscard]] virtual MemoryHold hold(const c10::Storage& /*storage*/) { return {}; }

  /// Memory from torch's own allocator, for use on `stream`, which current_stream() gave.
  [[nodiscard]] virtual c10::Storage allocate(std::size_t bytes, Stream& stream) = 0;

  /// Memory that is given back from now on is not used again before what is now queued on `stream`,
  /// which current_stream() gave, is done; of its own by itself. Nothing on the host.
  virtual void keep_until_done(const c10::Storage& /*storage*/, Stream& /*stream*/) {}

  /// Runs `work` on a side stream that waits for what is now queued on `stream`, which
  /// current_stream() gave, and is current meanwhile; on the host it is `stream` itself.
  virtual void beside(Stream& stream, const std::function<void(Stream&)>& work) = 0;

  /// Whether operators run on current_stream(), beside the calling thread.
  [[nodiscard]] virtual bool computes_beside() const = 0;
  /// Queues some milliseconds of typical work, matrix products each followed by an elementwise
  /// operator, where operators run beside the calling thread and there is memory for them.
  virtual void keep_busy() = 0;

  /// Moves `mark` to the present end of `stream`, which current_stream() gave. Its event is used
  /// again: nobody else may refer to it. Waits for nothing.
  virtual void mark(Stream& stream, TimeMark& mark) = 0;
  /// A moment on current_stream().
  [[nodiscard]] TimeMark now() {
    TimeMark moment;
    mark(current_stream(), moment);
    return moment;
  }
  /// A moment on current_stream() with an event from which times of other streams are counted.
  /// Blocks only where operators run on the calling thread, until work queued for that thread is
  /// done.
  [[nodiscard]] virtual TimeMark epoch() { return now(); }
  /// Never blocks.
  [[nodiscard]] virtual bool has_happened(const TimeMark& mark) const = 0;
  /// Blocks until both have happened.
  [[nodiscard]] virtual Nanoseconds elapsed(const TimeMark& from, const TimeMark& to) = 0;

  /// Runs elementwise operators as one kernel; null where there is no such thing.
  [[nodiscard]] virtual std::unique_ptr<ChainRunner> make_chain_runner() { return nullptr; }

  /// Writes a 64-bit number that equal bits share into `number`, one of type long on this device;
  /// other bits give another one, but for a chance of 2^-64 or so. Ranks may compare it. Queued on
  /// `stream`, which current_stream() gave; waits for nothing. Precondition: the storage has the
  /// bytes.
  virtual void digest(const c10::Storage& storage, ByteRange bytes, const at::Tensor& number,
                      Stream& stream) = 0;

  /// In which steps host memory is pinned for offloaded buffers: small where a step costs nothing,
  /// because a session pins at least two of them.
  [[nodiscard]] virtual Bytes host_chunk() const { return SlabOptions{}.chunk; }

  /// What torch's allocator has handed out now; it hands out multiples of granularity().
  [[nodiscard]] virtual Bytes allocated() const = 0;
  [[nodiscard]] virtual Bytes granularity() const = 0;
  /// What it hands out for `bytes`; plans count in the same unit.
  [[nodiscard]] std::size_t handed_out(std::size_t bytes) const {
    const std::size_t unit = std::max<std::size_t>(granularity().count(), 1);
    return (bytes + unit - 1) / unit * unit;
  }
  /// How much more it could hand out now to this process, which may be one of several on a host.
  [[nodiscard]] virtual Bytes room() const = 0;
  /// The most that it had handed out at once since take_peak().
  [[nodiscard]] virtual Bytes peak() const = 0;
  /// Returns peak() and starts a new one.
  virtual Bytes take_peak() = 0;
};

/// Errors: InvalidArgument if there is no such device.
[[nodiscard]] std::unique_ptr<TorchDevice> make_torch_device(std::optional<at::Device> wanted);

/// For make_torch_device(), one of two translation units: null where torch has no CUDA or finds no
/// device.
[[nodiscard]] std::unique_ptr<TorchDevice> make_cuda_torch_device(std::optional<int> index);

}  // namespace spillway
