#include "train/model/loss_scaler.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>

namespace spillway::app {

LossScaler::LossScaler(at::Device device, const LossScale& options)
    : options_(options),
      scale_(at::full({1}, options.start, at::TensorOptions().device(device).dtype(at::kFloat))),
      growth_tracker_(at::full({1}, 0, at::TensorOptions().device(device).dtype(at::kInt))),
      not_finite_(at::full({1}, 0, scale_.options())) {}

at::Tensor LossScaler::scale(const at::Tensor& loss) const {
  return loss.to(at::kFloat).mul(scale_.squeeze(0));
}

void LossScaler::unscale(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> defined;
  for (const at::Tensor& each : gradients) {
    if (each.defined()) defined.push_back(each);
  }
  if (defined.empty()) return;
  const at::NoGradGuard no_grad;
  const at::Tensor inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
  at::_amp_foreach_non_finite_check_and_unscale_(defined, not_finite_, inverse);
}

bool LossScaler::finite() const { return not_finite_.item<float>() == 0; }

void LossScaler::update() {
  at::_amp_update_scale_(scale_, growth_tracker_, not_finite_, options_.growth, options_.backoff,
                         options_.interval);
  not_finite_.zero_();
}

LossScalerState LossScaler::state() const {
  return {scale_.item<double>(), growth_tracker_.item<std::int64_t>()};
}

void LossScaler::set_state(const LossScalerState& state) {
  scale_.fill_(state.scale);
  growth_tracker_.fill_(state.growth_tracker);
  not_finite_.zero_();
}

}  // namespace spillway::app
