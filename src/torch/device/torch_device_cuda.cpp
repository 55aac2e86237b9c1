#include <optional>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "spillway/core/event_pool.hpp"
#include "spillway/cuda/cuda_device.hpp"
#include "torch/device/chain_runner_cuda.hpp"
#include "torch/device/cuda_digest.hpp"
#include "torch/device/torch_device.hpp"
#include "torch/device/written_by_kernel.hpp"

namespace spillway {

at::Tensor written_by_kernel(const at::Tensor& tensor) {
  const c10::cuda::CUDAGuard guard(tensor.device());
  const at::Tensor host =
      at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true));
  if (host.numel() == 0) return host;
  void* mapped = nullptr;
  C10_CUDA_CHECK(cudaHostGetDevicePointer(&mapped, host.mutable_data_ptr(), 0));
  at::Tensor there = at::for_blob(mapped, host.sizes())
                         .options(tensor.options())
                         .target_device(tensor.device())
                         .make_tensor();
  at::bitwise_or_out(there, tensor, false);  // A zero would turn booleans into integers.
  c10::cuda::stream_synchronize(c10::cuda::getCurrentCUDAStream().stream());
  return host;
}

namespace {

class CudaTorchDevice final : public TorchDevice {
 public:
  explicit CudaTorchDevice(int index)
      : index_(static_cast<c10::DeviceIndex>(index)),
        device_(index),
        events_(device_, Timing::kOn) {
    // The allocator's statistics exist only once it is there.
    at::globalContext().lazyInitDevice(at::kCUDA);
  }

  [[nodiscard]] at::Device torch_device() const override { return {at::kCUDA, index_}; }
  [[nodiscard]] Device& device() override { return device_; }

  [[nodiscard]] Stream& current_stream() override {
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(index_);
    for (const Known& known : streams_) {
      if (known.torch == stream) return *known.ours;
    }
    streams_.push_back({stream, device_.borrow_stream(stream.stream(), "compute")});
    return *streams_.back().ours;
  }

  [[nodiscard]] bool is_capturing() const override {
    const auto stream = c10::cuda::getCurrentCUDAStream(index_).stream();
    // CUDA cannot capture the legacy stream, and this is asked for every saved tensor.
    if (stream == nullptr) return false;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t code = cudaStreamIsCapturing(stream, &status);
    if (code == cudaSuccess) return status != cudaStreamCaptureStatusNone;
    (void)cudaGetLastError();  // Whoever uses the device next hears of it.
    return false;
  }

  void catch_up(Stream& /*stream*/) override {}

  [[nodiscard]] c10::Storage allocate(std::size_t bytes, Stream& stream) override {
    const c10::cuda::CUDAStreamGuard guard(torch_stream(stream));
    c10::Allocator* const allocator = c10::cuda::CUDACachingAllocator::get();
    return {c10::Storage::use_byte_size_t(), bytes, allocator->allocate(bytes), allocator, false};
  }

  void beside(Stream& stream, const std::function<void(Stream&)>& work) override {
    if (!beside_) beside_ = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index_);
    const c10::cuda::CUDAStreamGuard guard(*beside_);
    Stream& side = current_stream();
    const EventRef here = events_.take();
    stream.record(*here);
    side.wait(*here);
    work(side);
  }

  [[nodiscard]] bool computes_beside() const override { return true; }
  void keep_busy() override {
    // Work that fits into the cache is slowed by copies three times as much as layers are.
    constexpr int kRows = 8192;
    constexpr int kInner = 4096;
    constexpr int kProducts = 8;
    constexpr Bytes kTaken{(2ULL * kRows * kInner + 1ULL * kRows * kRows) * 2};
    if (room() < kTaken + kTaken) return;
    try {
      const at::NoGradGuard no_gradients;
      const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
      const auto options = at::TensorOptions().device(torch_device()).dtype(at::kBFloat16);
      const at::Tensor left = at::ones({kRows, kInner}, options);
      const at::Tensor right = at::ones({kInner, kRows}, options);
      at::Tensor product = at::empty({kRows, kRows}, options);
      for (int i = 0; i < kProducts; ++i) {
        at::mm_out(product, left, right);
        at::add_out(product, product, product);
      }
    } catch (const c10::Error&) {
      return;  // No memory, or deterministic products required: not worth an error.
    }
  }

  void mark(Stream& stream, TimeMark& mark) override {
    if (mark.event == nullptr) mark.event = events_.take();
    stream.record(*mark.event);
  }
  [[nodiscard]] bool has_happened(const TimeMark& mark) const override {
    return mark.event->query();
  }
  [[nodiscard]] Nanoseconds elapsed(const TimeMark& from, const TimeMark& to) override {
    to.event->synchronize();
    from.event->synchronize();
    return to.event->elapsed_since(*from.event);
  }

  void keep_until_done(const c10::Storage& storage, Stream& stream) override {
    c10::cuda::CUDACachingAllocator::recordStream(storage.data_ptr(), torch_stream(stream));
  }

  void digest(const c10::Storage& storage, ByteRange bytes, const at::Tensor& number,
              Stream& stream) override {
    const c10::cuda::CUDAStreamGuard guard(torch_stream(stream));
    cuda_digest(storage, bytes, number);
  }

  [[nodiscard]] std::unique_ptr<ChainRunner> make_chain_runner() override {
    return make_cuda_chain_runner(index_);
  }

  [[nodiscard]] Bytes allocated() const override { return Bytes(count(statistic().current)); }
  [[nodiscard]] Bytes granularity() const override { return Bytes(512); }
  [[nodiscard]] Bytes room() const override {
    const c10::cuda::CUDAGuard guard(index_);
    std::size_t free = 0;
    std::size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    const auto statistics = c10::cuda::CUDACachingAllocator::getDeviceStats(index_);
    const std::int64_t unused =
        statistics.reserved_bytes[0].current - statistics.allocated_bytes[0].current;
    return Bytes(free) + Bytes(count(unused));
  }
  [[nodiscard]] Bytes peak() const override { return Bytes(count(statistic().peak)); }
  Bytes take_peak() override {
    const Bytes until_now = peak();
    c10::cuda::CUDACachingAllocator::resetPeakStats(index_);
    return until_now;
  }

 private:
  struct Known {
    c10::cuda::CUDAStream torch;
    std::unique_ptr<Stream> ours;
  };

  [[nodiscard]] c10::CachingAllocator::Stat statistic() const {
    return c10::cuda::CUDACachingAllocator::getDeviceStats(index_).allocated_bytes[0];
  }
  static std::uint64_t count(std::int64_t bytes) { return static_cast<std::uint64_t>(bytes); }

  [[nodiscard]] c10::cuda::CUDAStream torch_stream(const Stream& stream) const {
    for (const Known& known : streams_) {
      if (known.ours.get() == &stream) return known.torch;
    }
    return c10::cuda::getCurrentCUDAStream(index_);
  }

  c10::DeviceIndex index_;
  CudaDevice device_;
  EventPool events_;
  std::optional<c10::cuda::CUDAStream> beside_;
  std::vector<Known> streams_;  // Few; torch makes its streams once.
};

}  // namespace

std::unique_ptr<TorchDevice> make_cuda_torch_device(std::optional<int> index) {
  if (!at::Context::hasCUDA() || c10::cuda::device_count() == 0) return nullptr;
  return std::make_unique<CudaTorchDevice>(index.value_or(c10::cuda::current_device()));
}

}  // namespace spillway
