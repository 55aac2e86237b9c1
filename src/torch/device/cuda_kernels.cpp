#include "torch/device/cuda_kernels.hpp"

#include <array>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include <c10/cuda/CUDAException.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <nvrtc.h>

namespace spillway {
namespace {

/// The compiler, loaded when it is first wanted: torch does the same, and a program that never
/// recomputes never needs it.
class Compiler {
 public:
  /// Null if it is not there.
  static const Compiler* get() {
    static const Compiler kCompiler;
    return kCompiler.usable_ ? &kCompiler : nullptr;
  }

  /// Machine code for the device of that capability. Empty if it cannot be compiled; `problem` says
  /// why.
  [[nodiscard]] std::vector<char> compile(const std::string& source, int capability,
                                          std::string& problem) const {
    nvrtcProgram program = nullptr;
    if (create_(&program, source.c_str(), "kernel.cu", 0, nullptr, nullptr) != NVRTC_SUCCESS) {
      problem = "the compiler takes no program";
      return {};
    }
    const std::string architecture = "--gpu-architecture=sm_" + std::to_string(capability);
    // Products and sums are rounded one by one, as those of operators are.
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
    void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // For ever.
    if (library == nullptr) return;
    usable_ =
        find(library, "nvrtcCreateProgram", create_) &&
        find(library, "nvrtcCompileProgram", compile_) &&
        find(library, "nvrtcGetCUBINSize", code_size_) && find(library, "nvrtcGetCUBIN", code_) &&
        find(library, "nvrtcGetProgramLogSize", log_size_) &&
        find(library, "nvrtcGetProgramLog", log_) && find(library, "nvrtcDestroyProgram", destroy_);
    load_builtins(library);
  }

  /// The compiler looks for its second library where the system has libraries. In wheels both are
  /// in one folder that the system does not know; what is loaded already is found by its name.
  static void load_builtins(void* library) {
    decltype(&nvrtcVersion) version = nullptr;
    if (!find(library, "nvrtcVersion", version)) return;
    int major = 0;
    int minor = 0;
    Dl_info found{};
    if (version(&major, &minor) != NVRTC_SUCCESS ||
        dladdr(reinterpret_cast<void*>(version), &found) == 0) {  // NOLINT
      return;
    }
    const std::filesystem::path folder = std::filesystem::path(found.dli_fname).parent_path();
    const std::string name =
        "libnvrtc-builtins.so." + std::to_string(major) + "." + std::to_string(minor);
    (void)dlopen((folder / name).c_str(), RTLD_NOW | RTLD_GLOBAL);
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

}  // namespace

std::vector<char> compile_kernel(const std::string& source, int capability, std::string& problem) {
  problem = "libnvrtc is not there";
  const Compiler* const compiler = Compiler::get();
  if (compiler == nullptr) return {};
  return compiler->compile(source, capability, problem);
}

namespace {

/// All that were compiled in this process, by source and capability; they stay.
class Kernels {
 public:
  static Kernels& get() {
    static auto* const kKernels = new Kernels;  // Replays may run until the very end.
    return *kKernels;
  }

  /// Null if there can be none. Said once for each.
  cudaKernel_t find(const std::string& source, const char* name, int capability) {
    const std::lock_guard lock(mutex_);
    const auto [found, added] = kernels_.try_emplace({source, capability}, nullptr);
    if (added) found->second = make(source, name, capability);
    return found->second;
  }

 private:
  static cudaKernel_t make(const std::string& source, const char* name, int capability) {
    std::string problem;
    const std::vector<char> code = compile_kernel(source, capability, problem);
    if (code.empty()) {
      TORCH_WARN("[device] no kernel \"", name, "\", so slower operators do its work: ", problem);
      return nullptr;
    }
    cudaLibrary_t library = nullptr;
    cudaKernel_t kernel = nullptr;
    C10_CUDA_CHECK(
        cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    C10_CUDA_CHECK(cudaLibraryGetKernel(&kernel, library, name));
    return kernel;
  }

  std::mutex mutex_;
  std::map<std::pair<std::string, int>, cudaKernel_t> kernels_;
};

}  // namespace

cudaKernel_t find_kernel(const std::string& source, const char* name, int capability) {
  return Kernels::get().find(source, name, capability);
}

int compute_capability(c10::DeviceIndex device) {
  int major = 0;
  int minor = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
}

}  // namespace spillway
