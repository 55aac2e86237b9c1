#include "spillway/torch/torch_info.hpp"

#include <cstdint>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/arange.h>
#include <torch/headeronly/version.h>

namespace spillway {
namespace {

std::string cuda_text(long version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// cuDNN 9 counts major * 10000 + minor * 100 + patch, earlier ones major * 1000.
std::string cudnn_text(long version) {
  const long unit = version >= 90000 ? 10000 : 1000;
  return std::to_string(version / unit) + "." + std::to_string(version % unit / 100) + "." +
         std::to_string(version % 100);
}

bool sums_right() {
  constexpr std::int64_t kCount = 1000;
  return at::arange(kCount).sum().item<std::int64_t>() == kCount * (kCount - 1) / 2;
}

}  // namespace

TorchInfo torch_info() {
  TorchInfo info;
  info.version = TORCH_VERSION;
  info.threads = at::get_num_threads();
  info.computes = sums_right();
  const at::CUDAHooksInterface& cuda = at::detail::getCUDAHooks();
  if (cuda.hasCUDART()) info.cuda_version = cuda_text(cuda.versionCUDART());
  info.sees_cuda = cuda.hasCUDA();
  // Without a device torch says that it has no cuDNN, although it is linked.
  if (cuda.hasCuDNN()) info.cudnn_version = cudnn_text(cuda.versionRuntimeCuDNN());
  return info;
}

}  // namespace spillway
