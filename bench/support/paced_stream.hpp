/// A stream on which transfers take as long as on a link of a given speed, to emulate other ranks.
///
/// The stream waits on the host's clock and then copies the bytes on the device. So a transfer uses
/// no multiprocessors of a GPU and almost none of its memory bandwidth, unlike NCCL.
///
/// Threads: one at a time.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "spillway/core/bytes.hpp"
#include "spillway/core/event_pool.hpp"
#include "torch/device/torch_device.hpp"

namespace spillway::bench {

class PacedStream {
 public:
  struct Transfer {
    EventRef begin, end;
  };

  /// Lifetime: `device` must outlive this.
  PacedStream(TorchDevice& device, double bytes_per_second);

  /// Takes the time of `bytes`, then fills `output` with `input`, repeated until it is full.
  /// Ordering: after all work now queued on the current stream.
  /// Lifetime: both tensors must outlive the transfer.
  Transfer start(const at::Tensor& output, const at::Tensor& input, Bytes bytes);

  /// Makes the current stream wait for the transfer; on the CPU the calling thread waits.
  void wait_for(const Event& end);

 private:
  TorchDevice& device_;
  EventPool events_;
  std::unique_ptr<Stream> stream_;
  double speed_;
};

}  // namespace spillway::bench
