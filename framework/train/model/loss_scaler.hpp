/// Loss scaling for fp16: small gradients would be zero in it.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace spillway::app {

struct LossScale {
  double start = 65536;
  double growth = 2;  ///< Factor after `interval` steps in a row with finite gradients.
  std::int64_t interval = 2000;
  double backoff = 0.5;  ///< Factor after a step without.
};

/// What a resumed run needs.
struct LossScalerState {
  double scale = 0;
  std::int64_t growth_tracker = 0;  ///< Finite steps since the scale last changed.

  bool operator==(const LossScalerState&) const = default;
};

/// A step: backward of scale(loss); unscale(gradients); the maximum of not_finite() over all ranks;
/// the optimizer's step if finite(); update(). Scale and flag live on the device; only finite() and
/// state() wait for it. All ranks have the same scale as long as they have the same flag.
class LossScaler {
 public:
  explicit LossScaler(at::Device device, const LossScale& options = {});

  /// In fp32, since the scale is more than fp16 holds.
  [[nodiscard]] at::Tensor scale(const at::Tensor& loss) const;
  /// Divides the gradients (of one type; undefined ones are left out) by the scale, and raises the
  /// flag if a value is not finite.
  void unscale(const std::vector<at::Tensor>& gradients);
  /// The flag: one number, 0 or 1, to be changed in place by a collective.
  [[nodiscard]] at::Tensor& not_finite() noexcept { return not_finite_; }
  /// Waits for the device.
  [[nodiscard]] bool finite() const;
  /// Grows or backs off, and lowers the flag.
  void update();

  /// Waits for the device.
  [[nodiscard]] LossScalerState state() const;
  void set_state(const LossScalerState& state);

 private:
  LossScale options_;
  at::Tensor scale_;
  at::Tensor growth_tracker_;
  at::Tensor not_finite_;
};

}  // namespace spillway::app
