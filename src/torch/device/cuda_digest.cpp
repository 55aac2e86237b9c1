#include "torch/device/cuda_digest.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
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

// Words are mixed with their indices and added up: whole numbers add up in any order, so the order
// of threads does not show. The mixing is the finalizer of SplitMix64. Memory that does not begin
// at a word gets the same number: its bytes may be compared with a copy of them that does.
const char* const kCudaDigestSource = R"(
__device__ unsigned long long mixed(unsigned long long word, unsigned long long index) {
  unsigned long long x = word ^ (index + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

__device__ unsigned long long word_at(const unsigned char* bytes, unsigned long long index,
                                      bool aligned) {
  if (aligned) return reinterpret_cast<const unsigned long long*>(bytes)[index];
  unsigned long long word = 0;
  for (int i = 7; i >= 0; --i) word = word << 8 | bytes[8 * index + i];
  return word;
}

extern "C" __global__ void digest(const unsigned char* bytes, unsigned long long size,
                                  unsigned long long* sum) {
  const unsigned long long words = size / 8;
  const bool aligned = reinterpret_cast<unsigned long long>(bytes) % 8 == 0;
  const unsigned long long threads = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  const unsigned long long before = static_cast<unsigned long long>(blockIdx.x) * blockDim.x;
  const unsigned long long first = before + threadIdx.x;
  unsigned long long mine = 0;
  for (unsigned long long i = first; i < words; i += threads) {
    mine += mixed(word_at(bytes, i, aligned), i);
  }
  if (first == 0) {
    unsigned long long rest = 0;
    for (unsigned long long i = 8 * words; i < size; ++i) rest = rest << 8 | bytes[i];
    mine += mixed(rest, words) + mixed(size, words + 1);
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) mine += __shfl_down_sync(0xffffffffu, mine, lanes);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}
)";

void cuda_digest_on_host(const c10::Storage& storage, ByteRange bytes, const at::Tensor& number) {
  const at::NoGradGuard no_gradients;
  const at::Tensor there = at::empty({0}, at::TensorOptions(at::kByte).device(storage.device()))
                               .set_(storage, static_cast<std::int64_t>(bytes.begin),
                                     {static_cast<std::int64_t>(bytes.size)}, {1});
  const c10::Storage here = there.cpu().storage();
  number.fill_(host_digest(here, {0, bytes.size}));
}

void cuda_digest(const c10::Storage& storage, ByteRange bytes, const at::Tensor& number) {
  const at::NoGradGuard no_gradients;
  const c10::Device device = storage.device();
  const cudaKernel_t kernel =
      find_kernel(kCudaDigestSource, "digest", compute_capability(device.index()));
  if (kernel == nullptr) return cuda_digest_on_host(storage, bytes, number);
  const void* data = static_cast<const std::byte*>(storage.data()) + bytes.begin;
  number.zero_();
  unsigned long long size = bytes.size;
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
