/// Losses that layers have besides that of the model, such as those that keep the experts of a
/// mixture evenly loaded.
///
/// A layer in the middle of a pipeline has no part in the model's loss, which the last stage alone
/// computes. So it attaches its own to a value that goes on: the value is unchanged, and when its
/// gradient comes back in backward, the loss gets the gradient that the model's loss has: the
/// weight of the pass in the step (its share of the step's targets over all data ranks, times the
/// scale of fp16). Without a pass that is 1.
#pragma once

#include <array>
#include <cstddef>
#include <functional>

#include <ATen/core/Tensor.h>

namespace spillway {

/// What there is besides the model's loss.
enum class ExtraLoss { kBalance, kZ };
inline constexpr std::size_t kExtraLosses = 2;

/// By ExtraLoss: the sum over the layers, each as the mean over the micro-batches; undefined where
/// no layer had one.
using ExtraLosses = std::array<at::Tensor, kExtraLosses>;

/// The pass that runs on this thread, as long as this lives. Not to be nested.
class PassLosses {
 public:
  /// `weight` gives a number on the device. `share`: of the pass among those of this rank's step.
  /// `sums` is added to, on the device, and must outlive this.
  PassLosses(std::function<at::Tensor()> weight, double share, ExtraLosses& sums);
  PassLosses(const PassLosses&) = delete;
  PassLosses& operator=(const PassLosses&) = delete;
  ~PassLosses();

 private:
  friend at::Tensor with_loss(const at::Tensor&, ExtraLoss, const at::Tensor&, double);

  std::function<at::Tensor()> weight_;
  double share_;
  ExtraLosses& sums_;
};

/// `value`, with `coefficient` times `loss`, one number, attached. The pass reports `loss` without
/// the coefficient. Nothing waits for the device.
[[nodiscard]] at::Tensor with_loss(const at::Tensor& value, ExtraLoss kind, const at::Tensor& loss,
                                   double coefficient);

}  // namespace spillway
