#include "torch/graph/compute_flags.hpp"

#include <c10/core/DefaultDtype.h>

namespace spillway {

ComputeFlags ComputeFlags::now() {
  at::Context& context = at::globalContext();
  ComputeFlags flags;
  flags.default_dtype = c10::get_default_dtype_as_scalartype();
  flags.deterministic = context.deterministicAlgorithms();
  flags.warn_only = context.deterministicAlgorithmsWarnOnly();
  flags.cudnn = context.userEnabledCuDNN();
  flags.cudnn_deterministic = context.deterministicCuDNN();
  flags.cudnn_benchmark = context.benchmarkCuDNN();
  flags.flash_attention = context.userEnabledFlashSDP();
  flags.efficient_attention = context.userEnabledMemEfficientSDP();
  flags.math_attention = context.userEnabledMathSDP();
  flags.cudnn_attention = context.userEnabledCuDNNSDP();
  return flags;
}

void ComputeFlags::apply() const {
  at::Context& context = at::globalContext();
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(default_dtype));
  context.setDeterministicAlgorithms(deterministic, warn_only);
  context.setUserEnabledCuDNN(cudnn);
  context.setDeterministicCuDNN(cudnn_deterministic);
  context.setBenchmarkCuDNN(cudnn_benchmark);
  context.setSDPUseFlash(flash_attention);
  context.setSDPUseMemEfficient(efficient_attention);
  context.setSDPUseMath(math_attention);
  context.setSDPUseCuDNN(cudnn_attention);
}

AppliedFlags::AppliedFlags(const ComputeFlags& flags)
    : before_(ComputeFlags::now()), differ_(before_ != flags) {
  if (differ_) flags.apply();
}

AppliedFlags::~AppliedFlags() {
  if (differ_) before_.apply();
}

}  // namespace spillway
