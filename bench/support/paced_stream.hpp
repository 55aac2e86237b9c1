/// A stream on which bytes take as long as they would on a link of a given speed; for stand-ins of
/// other ranks.
///
/// What really is done: bytes are copied on the device, and before that the stream waits on the
/// host's clock for the rest of the time. So a transfer takes no processors of a GPU and next to
/// none of its memory bandwidth, which one by NCCL does.
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

  /// Takes the time of `bytes`, then fills `output` with `input`, over and over until it is full.
  /// Ordering: after all work now queued on the current stream.
  /// Lifetime: both tensors must stay until the transfer's end.
  Transfer start(const at::Tensor& output, const at::Tensor& input, Bytes bytes);

  /// The current stream goes on when the transfer has ended; on the CPU this thread does.
  void wait_for(const Event& end);

 private:
  TorchDevice& device_;
  EventPool events_;
  std::unique_ptr<Stream> stream_;
  double speed_;
};

}  // namespace spillway::bench
