/// AdamW over named parameters, with its state by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/optim/adamw.h>

#include "train/config/config.hpp"
#include "train/model/named_tensor.hpp"

namespace spillway::app {

/// The optimizer of the parameters of one rank. What it does to a parameter depends on that one
/// alone, so bits do not depend on how parameters are spread over ranks. Its memory is all there
/// from the start. Threads: one at a time.
class Optimizer {
 public:
  /// Matrices decay, vectors do not. Keeps the tensors alive.
  Optimizer(std::vector<NamedTensor> parameters, const OptimizerConfig& config);

  /// Updates the parameters that have gradients.
  void step(double learning_rate);
  /// Sets gradients to zero, and makes them where there are none.
  void zero_gradients();

  [[nodiscard]] const std::vector<NamedTensor>& parameters() const noexcept { return parameters_; }
  /// In the order of parameters(); undefined where there is none.
  [[nodiscard]] std::vector<at::Tensor> gradients() const;

  /// What a resumed run needs: "<parameter>.exp_avg", "<parameter>.exp_avg_sq" (the tensors
  /// themselves, no copies) and "<parameter>.step" (a 64-bit whole number on the CPU).
  [[nodiscard]] std::vector<NamedTensor> state() const;
  /// Takes what state() gave, on any device and in any order; tensors are copied, those of other
  /// parameters ignored.
  /// Errors: InvalidArgument for one that is missing or has another shape or type; nothing is
  /// changed then.
  void set_state(const std::vector<NamedTensor>& state);

 private:
  [[nodiscard]] torch::optim::AdamWParamState& state_of(const NamedTensor& parameter) const;

  std::vector<NamedTensor> parameters_;
  std::unique_ptr<torch::optim::AdamW> adam_;
};

}  // namespace spillway::app
