/// Small programs on one weight, trained without and with a session, and compared bit for bit.
#pragma once

#include <optional>
#include <vector>

#include "spillway/torch/session.hpp"
#include "tiny_model.hpp"

namespace spillway::testing {

/// A program on tensors that autograd saves; returns the loss.
using WeightProgram = at::Tensor (*)(const at::Tensor& weight, int step);

/// The weight's gradients without and with recompute over some steps; the number that differ.
inline int difference_of(WeightProgram program, Session& session, int steps = 4) {
  const Deterministic deterministic;
  const auto run = [&](Session* active) {
    std::vector<at::Tensor> gradients;
    at::manual_seed(3);
    at::Tensor weight = at::randn({64, 64}).set_requires_grad(true);
    if (active != nullptr) active->register_fixed(weight, FixedReason::kParameter);
    for (int i = 0; i < steps; ++i) {
      at::manual_seed(static_cast<std::uint64_t>(i));
      weight.mutable_grad() = at::Tensor();
      {
        std::optional<Step> step;
        if (active != nullptr) step.emplace(active->step());
        program(weight, i).backward();
      }
      gradients.push_back(weight.grad().clone());
    }
    return gradients;
  };
  const std::vector<at::Tensor> without = run(nullptr);
  return count_different(without, run(&session));
}

}  // namespace spillway::testing
