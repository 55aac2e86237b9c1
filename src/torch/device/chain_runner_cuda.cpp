#include "torch/device/chain_runner_cuda.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "torch/device/cuda_kernels.hpp"

namespace spillway {
namespace {

class CudaChainRunner final : public ChainRunner {
 public:
  explicit CudaChainRunner(c10::DeviceIndex device)
      : device_(device), capability_(compute_capability(device)) {}

  [[nodiscard]] bool run(const ChainProgram& program, std::int64_t elements, std::int64_t inner,
                         std::span<const at::Tensor> inputs,
                         std::span<const at::Tensor> outputs) override {
    constexpr int kOldest = 80;  // Rounds to bfloat16 by an instruction.
    if (capability_ < kOldest) return false;
    const cudaKernel_t kernel = known(program);
    if (kernel == nullptr) return false;
    long long vectors = elements / ChainProgram::kWidth;
    long long row = inner / ChainProgram::kWidth;
    std::vector<void*> pointers;
    for (const at::Tensor& input : inputs) pointers.push_back(input.data_ptr());
    for (const at::Tensor& output : outputs) pointers.push_back(output.mutable_data_ptr());
    std::vector<void*> arguments{&vectors, &row};
    for (void*& pointer : pointers) arguments.push_back(&pointer);
    constexpr long long kThreads = 256;
    const dim3 blocks(
        static_cast<unsigned>(std::min<long long>((vectors + kThreads - 1) / kThreads, 1LL << 30)));
    const c10::cuda::CUDAGuard guard(device_);
    C10_CUDA_CHECK(cudaLaunchKernel(kernel, blocks, dim3(kThreads), arguments.data(), 0,
                                    c10::cuda::getCurrentCUDAStream(device_).stream()));
    return true;
  }

 private:
  /// Caches kernels by program, so that the source is generated once.
  cudaKernel_t known(const ChainProgram& program) {
    for (const auto& [each, kernel] : programs_) {
      if (each == program) return kernel;
    }
    programs_.emplace_back(program, find_kernel(program.source(), "chain", capability_));
    return programs_.back().second;
  }

  c10::DeviceIndex device_;
  int capability_;
  std::vector<std::pair<ChainProgram, cudaKernel_t>> programs_;
};

}  // namespace

std::vector<char> compile_chain(const ChainProgram& program, int capability, std::string& problem) {
  return compile_kernel(program.source(), capability, problem);
}

std::unique_ptr<ChainRunner> make_cuda_chain_runner(c10::DeviceIndex device) {
  return std::make_unique<CudaChainRunner>(device);
}

}  // namespace spillway
