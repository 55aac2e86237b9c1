#include "spillway/torch/read_back.hpp"

#include <ATen/core/grad_mode.h>

#include "spillway/core/error.hpp"
#include "spillway/torch/untimed_wait.hpp"
#include "torch/device/written_by_kernel.hpp"
#include "torch/hooks/call_recorder.hpp"

namespace spillway {

at::Tensor read_back(const at::Tensor& tensor) {
  if (!at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)) {
    throw InvalidArgument("read_back", "a tensor of integers or booleans wanted, not of " +
                                           std::string(at::toString(tensor.scalar_type())));
  }
  const RecordingPause pause;
  const at::NoGradGuard no_gradients;
  at::Tensor host;
  untimed_wait([&] { host = tensor.is_cuda() ? written_by_kernel(tensor) : tensor.to(at::kCPU); });
  return host;
}

}  // namespace spillway
