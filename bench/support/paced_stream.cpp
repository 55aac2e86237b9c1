#include "support/paced_stream.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace spillway::bench {
namespace {

/// Sleeping threads wake up late, so the last part is a busy wait.
void pass_time(Nanoseconds time) {
  constexpr auto kLate = std::chrono::microseconds(150);
  const auto end = std::chrono::steady_clock::now() + time;
  if (time > kLate) std::this_thread::sleep_until(end - kLate);
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

void copy_over(Stream& stream, const at::Tensor& output, const at::Tensor& input) {
  auto* to = static_cast<std::byte*>(output.data_ptr());
  std::size_t left = output.nbytes();
  if (input.nbytes() == 0) return stream.fill(to, std::byte{0}, Bytes(left));
  while (left > 0) {
    const std::size_t size = std::min(left, input.nbytes());
    stream.copy(to, input.const_data_ptr(), Bytes(size), CopyKind::kOnDevice);
    to += size;
    left -= size;
  }
}

}  // namespace

PacedStream::PacedStream(TorchDevice& device, double bytes_per_second)
    : device_(device),
      events_(device.device(), Timing::kOn),
      stream_(device.device().make_stream("link")),
      speed_(bytes_per_second) {}

PacedStream::Transfer PacedStream::start(const at::Tensor& output, const at::Tensor& input,
                                         Bytes bytes) {
  const EventRef ready = events_.take();
  device_.current_stream().record(*ready);
  stream_->wait(*ready);
  const Nanoseconds time(
      static_cast<std::int64_t>(static_cast<double>(bytes.count()) * 1e9 / speed_));
  Transfer transfer{events_.take(), events_.take()};
  stream_->record(*transfer.begin);
  stream_->call("link", [time] { pass_time(time); });
  copy_over(*stream_, output, input);
  stream_->record(*transfer.end);
  return transfer;
}

void PacedStream::wait_for(const Event& end) {
  Stream& compute = device_.current_stream();
  compute.wait(end);
  device_.catch_up(compute);
}

}  // namespace spillway::bench
