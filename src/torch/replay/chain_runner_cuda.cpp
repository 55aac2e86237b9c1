#include "torch/replay/chain_runner_cuda.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvrtc.h>

namespace spillway {
namespace {

/// The compiler, loaded on first use: torch does the same, and a program that never recomputes never
/// needs it.
class Compiler {
 public:
  /// Null if it cannot be loaded.
  static const Compiler* get() {
    static const Compiler kCompiler;
    return kCompiler.usable_ ? &kCompiler : nullptr;
  }

  /// Machine code for devices of that capability. Empty if it cannot be compiled; then `problem` has
  /// the reason.
  [[nodiscard]] std::vector<char> compile(const std::string& source, int capability,
                                          std::string& problem) const {
    nvrtcProgram program = nullptr;
    if (create_(&program, source.c_str(), "chain.cu", 0, nullptr, nullptr) != NVRTC_SUCCESS) {
      problem = "the compiler takes no program";
      return {};
    }
    const std::string architecture = "--gpu-architecture=sm_" + std::to_string(capability);
    // No fused multiply-add: each operator rounds its result.
    const std::array<const char*, 3> options = {architecture.c_str(), "--std=c++17",
                                                "--fmad=false"};
    const nvrtcResult result = compile_(program, static_cast<int>(options.size()), options.data());
    std::vector<char> code;
    std::size_t size = 0;
    if (result == NVRTC_SUCCESS && code_size_(program, &size) == NVRTC_SUCCESS) {
      code.resize(size);
      if (code_(program, code.data()) != NVRTC_SUCCESS) code.clear();
    } else if (log_size_(program, &size) == NVRTC_SUCCESS) {
      std::vector<char> text(size + 1);
      (void)log_(program, text.data());
      problem = text.data();
    }
    (void)destroy_(&program);
    return code;
  }

 private:
  Compiler() {
    const std::string name = "libnvrtc.so." + std::to_string(CUDART_VERSION / 1000);
    void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // Never closed.
    if (library == nullptr) return;
    usable_ =
        find(library, "nvrtcCreateProgram", create_) &&
        find(library, "nvrtcCompileProgram", compile_) &&
        find(library, "nvrtcGetCUBINSize", code_size_) && find(library, "nvrtcGetCUBIN", code_) &&
        find(library, "nvrtcGetProgramLogSize", log_size_) &&
        find(library, "nvrtcGetProgramLog", log_) && find(library, "nvrtcDestroyProgram", destroy_);
  }

  template <typename Function>
  static bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));  // NOLINT
    return function != nullptr;
  }

  bool usable_ = false;
  decltype(&nvrtcCreateProgram) create_ = nullptr;
  decltype(&nvrtcCompileProgram) compile_ = nullptr;
  decltype(&nvrtcGetCUBINSize) code_size_ = nullptr;
  decltype(&nvrtcGetCUBIN) code_ = nullptr;
  decltype(&nvrtcGetProgramLogSize) log_size_ = nullptr;
  decltype(&nvrtcGetProgramLog) log_ = nullptr;
  decltype(&nvrtcDestroyProgram) destroy_ = nullptr;
};

std::vector<char> compile(const std::string& source, int capability, std::string& problem) {
  problem = "libnvrtc is not there";
  const Compiler* const compiler = Compiler::get();
  if (compiler == nullptr) return {};
  return compiler->compile(source, capability, problem);
}

/// All kernels compiled in this process, by source and capability; never freed.
class Kernels {
 public:
  static Kernels& get() {
    static auto* const kKernels = new Kernels;  // Replays may run until the very end.
    return *kKernels;
  }

  /// Null if it cannot be compiled. Warns once for each.
  cudaKernel_t find(const std::string& source, int capability) {
    const std::lock_guard lock(mutex_);
    const auto [found, added] = kernels_.try_emplace({source, capability}, nullptr);
    if (added) found->second = make(source, capability);
    return found->second;
  }

 private:
  static cudaKernel_t make(const std::string& source, int capability) {
    std::string problem;
    const std::vector<char> code = compile(source, capability, problem);
    if (code.empty()) {
      TORCH_WARN("[recompute] operators are repeated one by one: ", problem);
      return nullptr;
    }
    cudaLibrary_t library = nullptr;
    cudaKernel_t kernel = nullptr;
    C10_CUDA_CHECK(
        cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    C10_CUDA_CHECK(cudaLibraryGetKernel(&kernel, library, "chain"));
    return kernel;
  }

  std::mutex mutex_;
  std::map<std::pair<std::string, int>, cudaKernel_t> kernels_;
};

class CudaChainRunner final : public ChainRunner {
 public:
  explicit CudaChainRunner(c10::DeviceIndex device) : device_(device) {
    int major = 0;
    int minor = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    capability_ = 10 * major + minor;
  }

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
    programs_.emplace_back(program, Kernels::get().find(program.source(), capability_));
    return programs_.back().second;
  }

  c10::DeviceIndex device_;
  int capability_ = 0;
  std::vector<std::pair<ChainProgram, cudaKernel_t>> programs_;
};

}  // namespace

std::vector<char> compile_chain(const ChainProgram& program, int capability, std::string& problem) {
  return compile(program.source(), capability, problem);
}

std::unique_ptr<ChainRunner> make_cuda_chain_runner(c10::DeviceIndex device) {
  return std::make_unique<CudaChainRunner>(device);
}

}  // namespace spillway
