/// Small programs that are trained without and with a session, and compared bit for bit.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "training.hpp"

namespace spillway::testing {

/// Something that is trained. `step` computes a step's loss and runs its backward.
struct Program {
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> statistics;
  std::function<at::Tensor(Step*, int)> step;

  [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return weights; }
  [[nodiscard]] const std::vector<at::Tensor>& buffers() const { return statistics; }
};

using MakeProgram = std::function<Program()>;

inline at::Tensor weight(at::IntArrayRef sizes, at::Device device = at::kCPU) {
  return (at::randn(sizes) * 0.2).to(device).detach().set_requires_grad(true);
}

/// Losses, gradients and statistics of all steps.
inline std::vector<at::Tensor> train(const MakeProgram& make, Session* session, int steps) {
  at::manual_seed(3);
  Program program = make();
  if (session != nullptr) session->register_model(program);
  std::vector<at::Tensor> values;
  for (int i = 0; i < steps; ++i) {
    for (at::Tensor& each : program.weights) each.mutable_grad() = at::Tensor();
    at::manual_seed(static_cast<std::uint64_t>(i));
    {
      std::optional<Step> step;
      if (session != nullptr) step.emplace(session->step());
      values.push_back(program.step(step ? &*step : nullptr, i).detach().clone());
    }
    const at::NoGradGuard guard;
    for (at::Tensor& each : program.weights) {
      values.push_back(each.grad().defined() ? each.grad().clone() : at::Tensor());
      if (each.grad().defined()) each.add_(each.grad(), -0.05);
    }
    for (const at::Tensor& each : program.statistics) values.push_back(each.clone());
  }
  return values;
}

/// How many values differ in a bit from a run without the session.
inline int difference_of(const MakeProgram& make, Session& session, int steps = 5) {
  const testing::Deterministic deterministic;
  at::set_num_threads(1);
  const std::vector<at::Tensor> without = train(make, nullptr, steps);
  return count_different(without, train(make, &session, steps));
}

/// A program of one loss.
inline MakeProgram loss_of(std::function<std::vector<at::Tensor>()> weights,
                           std::function<at::Tensor(const std::vector<at::Tensor>&)> loss) {
  return [weights = std::move(weights), loss = std::move(loss)] {
    Program program;
    program.weights = weights();
    program.step = [all = program.weights, loss](Step*, int) {
      at::Tensor value = loss(all);
      value.backward();
      return value;
    };
    return program;
  };
}

/// Expects that it recomputes and that nothing is demoted.
inline void expect_recomputed(const Session& session) {
  const SessionReport report = session.report();
  EXPECT_GT(report.repeated_calls, 0U) << report;
  EXPECT_TRUE(report.demoted.empty()) << report;
  EXPECT_TRUE(report.fallbacks.empty()) << report;
}

inline void check(const MakeProgram& make) {
  Session session(recompute_everything());
  EXPECT_EQ(difference_of(make, session), 0);
  expect_recomputed(session);
}

/// Weights and a loss of a few layers, for what programs do with graphs.
inline std::vector<at::Tensor> three_weights() {
  return {weight({32, 32}), weight({32, 32}), weight({32, 32})};
}

inline at::Tensor layers(const std::vector<at::Tensor>& all, at::Tensor x) {
  for (const at::Tensor& each : all) x = at::dropout(at::gelu(at::mm(x, each)), 0.1, true);
  return x;
}

inline MakeProgram program_of(
    std::function<at::Tensor(std::vector<at::Tensor>& weights, Step* step, int i)> run) {
  return [run = std::move(run)] {
    Program program;
    program.weights = three_weights();
    program.step = [all = program.weights, run](Step* step, int i) mutable {
      return run(all, step, i);
    };
    return program;
  };
}

}  // namespace spillway::testing
