#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "spillway/core/error.hpp"
#include "spillway/core/host_device.hpp"
#include "spillway/memory/host_system.hpp"
#include "spillway/torch/host_memory.hpp"
#include "torch/device/host_digest.hpp"
#include "torch/device/torch_device.hpp"

namespace spillway {
namespace {

/// Tensors on the CPU. Operators run on the calling thread, copies on the host device's threads.
class HostTorchDevice final : public TorchDevice {
 public:
  HostTorchDevice() : stream_(device_.make_stream("cpu")) { count_host_memory(); }

  [[nodiscard]] at::Device torch_device() const override { return at::kCPU; }
  [[nodiscard]] Device& device() override { return device_; }
  [[nodiscard]] Stream& current_stream() override { return *stream_; }
  void catch_up(Stream& stream) override { stream.synchronize(); }
  [[nodiscard]] MemoryHold hold(const c10::Storage& storage) override {
    return MemoryHold(storage);
  }

  [[nodiscard]] c10::Storage allocate(std::size_t bytes, Stream& /*stream*/) override {
    c10::Allocator* const allocator = c10::GetCPUAllocator();
    return {c10::Storage::use_byte_size_t(), bytes, allocator->allocate(bytes), allocator, false};
  }

  void beside(Stream& stream, const std::function<void(Stream&)>& work) override { work(stream); }

  void digest(const c10::Storage& storage, ByteRange bytes, const at::Tensor& number,
              Stream& /*stream*/) override {
    *number.mutable_data_ptr<std::int64_t>() = host_digest(storage, bytes);
  }

  [[nodiscard]] bool computes_beside() const override { return false; }
  void keep_busy() override {}

  void mark(Stream& /*stream*/, TimeMark& mark) override { mark.host = clock_.now(); }
  [[nodiscard]] TimeMark epoch() override {
    EventRef event = device_.make_event(Timing::kOn);
    stream_->record(*event);
    event->synchronize();
    const Nanoseconds time = host_time(*event);  // Of the same clock as marks.
    return {std::move(event), time};
  }
  [[nodiscard]] bool has_happened(const TimeMark& /*mark*/) const override { return true; }
  [[nodiscard]] Nanoseconds elapsed(const TimeMark& from, const TimeMark& to) override {
    return to.host - from.host;
  }

  [[nodiscard]] Bytes host_chunk() const override { return Bytes(16ULL << 20U); }

  [[nodiscard]] Bytes allocated() const override { return host_memory(); }
  [[nodiscard]] Bytes granularity() const override { return {}; }
  [[nodiscard]] Bytes room() const override { return host_room_for_rank(); }
  [[nodiscard]] Bytes peak() const override { return host_memory_peak(); }
  Bytes take_peak() override { return start_host_memory_peak(); }

 private:
  HostDevice device_;
  SteadyClock clock_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace

std::unique_ptr<TorchDevice> make_torch_device(std::optional<at::Device> wanted) {
  if (wanted && wanted->is_cpu()) return std::make_unique<HostTorchDevice>();
  if (wanted && !wanted->is_cuda()) {
    throw InvalidArgument("session", "buffers on device " + wanted->str() +
                                         " cannot be managed; choose \"cuda\" or \"cpu\"");
  }
  const std::optional<int> index =
      wanted && wanted->has_index() ? std::optional<int>(wanted->index()) : std::nullopt;
  if (auto cuda = make_cuda_torch_device(index)) return cuda;
  if (wanted) {
    throw InvalidArgument("session", "device " + wanted->str() +
                                         " wanted, but torch finds no CUDA device; run `spillway "
                                         "doctor`, or choose \"cpu\"");
  }
  return std::make_unique<HostTorchDevice>();
}

}  // namespace spillway
