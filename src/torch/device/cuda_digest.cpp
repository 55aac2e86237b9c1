#include "torch/device/cuda_digest.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "torch/device/cuda_kernels.hpp"
#include "torch/device/host_digest.hpp"

namespace spillway {
namespace {

constexpr std::uintptr_t kWord = 8;

}  // namespace

// Words are mixed with their indices and added up: whole numbers add up in any order, so the order
// of threads does not show. The mixing is the finalizer of SplitMix64.
const char* const kCudaDigestSource = R"(
__device__ unsigned long long mixed(unsigned long long word, unsigned long long index) {
  unsigned long long x = word ^ (index + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

extern "C" __global__ void digest(const unsigned char* bytes, unsigned long long size,
                                  unsigned long long* sum) {
  const unsigned long long words = size / 8;
  const unsigned long long* const whole = reinterpret_cast<const unsigned long long*>(bytes);
  const unsigned long long threads = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  const unsigned long long before = static_cast<unsigned long long>(blockIdx.x) * blockDim.x;
  const unsigned long long first = before + threadIdx.x;
  unsigned long long mine = 0;
  for (unsigned long long i = first; i < words; i += threads) mine += mixed(whole[i], i);
  if (first == 0) {
    unsigned long long rest = 0;
    for (unsigned long long i = 8 * words; i < size; ++i) rest = rest << 8 | bytes[i];
    mine += mixed(rest, words) + mixed(size, words + 1);
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) mine += __shfl_down_sync(0xffffffffu, mine, lanes);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}
)";

void cuda_digest(const c10::Storage& storage, const at::Tensor& number) {
  const at::NoGradGuard no_gradients;
  const c10::Device device = storage.device();
  const cudaKernel_t kernel =
      find_kernel(kCudaDigestSource, "digest", compute_capability(device.index()));
  const auto options = at::TensorOptions(at::kByte).device(device);
  const void* data = storage.data();
  if (kernel == nullptr || reinterpret_cast<std::uintptr_t>(data) % kWord != 0) {  // NOLINT
    const at::Tensor bytes =
        at::empty({0}, options)
            .set_(storage, 0, {static_cast<std::int64_t>(storage.nbytes())}, {1});
    number.fill_(host_digest(bytes.cpu().storage()));
    return;
  }
  number.zero_();
  unsigned long long size = storage.nbytes();
  void* result = number.mutable_data_ptr();
  std::array<void*, 3> arguments{static_cast<void*>(&data), &size, static_cast<void*>(&result)};
  constexpr unsigned long long kThreads = 256;
  constexpr unsigned long long kMostBlocks = 2048;
  const unsigned long long blocks =
      std::clamp((size / 8 + kThreads - 1) / kThreads, 1ULL, kMostBlocks);
  const c10::cuda::CUDAGuard guard(device);
  C10_CUDA_CHECK(cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads),
                                  arguments.data(), 0,
                                  c10::cuda::getCurrentCUDAStream(device.index()).stream()));
}

}  // namespace spillway
