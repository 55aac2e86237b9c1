#include "train/model/optimizer.hpp"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <gtest/gtest.h>

#include "framework/train/support/named_tensors.hpp"
#include "spillway/core/error.hpp"
#include "support/error_text.hpp"

namespace spillway::app {
namespace {

using spillway::testing::error_text;

at::Tensor values(at::IntArrayRef sizes, double shift) {
  std::int64_t count = 1;
  for (const std::int64_t each : sizes) count *= each;
  return at::sin(at::arange(count, at::kFloat) + shift).view(sizes);
}

/// Two matrices and a vector, always the same ones.
std::vector<NamedTensor> parameters() {
  std::vector<NamedTensor> made = {
      {"a.weight", values({3, 4}, 0)}, {"a.norm", values({4}, 1)}, {"b.weight", values({4, 2}, 2)}};
  for (const NamedTensor& each : made) each.tensor.requires_grad_(true);
  return made;
}

/// The gradient that parameter `name` has at a step.
void set_gradients(const std::vector<NamedTensor>& parameters, int step) {
  for (const NamedTensor& each : parameters) {
    each.tensor.mutable_grad() =
        values(each.tensor.sizes(), 10 * step + static_cast<double>(each.name.size()));
  }
}

void step_through(Optimizer& optimizer, int first, int end) {
  for (int step = first; step < end; ++step) {
    set_gradients(optimizer.parameters(), step);
    optimizer.step(0.01 * (step + 1));
  }
}

TEST(Optimizer, DoesToAParameterTheSameInEverySplit) {
  Optimizer whole(parameters(), {});
  step_through(whole, 0, 3);
  std::vector<NamedTensor> split;
  for (const NamedTensor& each : parameters()) {
    Optimizer alone({each}, {});
    step_through(alone, 0, 3);
    split.push_back(each);
  }
  expect_equal(whole.parameters(), split);
}

TEST(Optimizer, DecaysMatricesOnly) {
  OptimizerConfig config;
  config.weight_decay = 0.5;
  Optimizer optimizer(parameters(), config);
  optimizer.zero_gradients();
  optimizer.step(1);
  const std::vector<NamedTensor> before = parameters();
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(optimizer.parameters()[0].tensor, before[0].tensor * 0.5));
  EXPECT_TRUE(at::equal(optimizer.parameters()[1].tensor, before[1].tensor));
}

TEST(Optimizer, UsesTheLearningRateAndSettingsItIsGiven) {
  OptimizerConfig config;
  config.weight_decay = 0;
  config.epsilon = 0;
  Optimizer optimizer({{"w", at::ones({2, 2}).requires_grad_(true)}}, config);
  optimizer.parameters()[0].tensor.mutable_grad() = at::ones({2, 2}) * -3;
  optimizer.step(0.25);  // The first step of Adam goes one learning rate against the gradient.
  const at::NoGradGuard no_grad;
  EXPECT_NEAR((optimizer.parameters()[0].tensor[0][0].item<double>()), 1.25, 1e-6);
}

TEST(Optimizer, MakesGradientsOnceAndClearsThemInPlace) {
  Optimizer optimizer(parameters(), {});
  optimizer.zero_gradients();
  const at::Tensor gradient = optimizer.gradients()[0];
  gradient.fill_(1);
  optimizer.zero_gradients();
  EXPECT_EQ(optimizer.gradients()[0].const_data_ptr(), gradient.const_data_ptr());
  EXPECT_EQ(gradient.abs().sum().item<float>(), 0);
}

TEST(OptimizerState, LetsAnotherOneGoOnToTheBit) {
  Optimizer unbroken(parameters(), {});
  step_through(unbroken, 0, 2);
  std::vector<NamedTensor> weights;
  for (const NamedTensor& each : unbroken.parameters()) {
    weights.push_back({each.name, each.tensor.detach().clone().requires_grad_(true)});
  }
  std::vector<NamedTensor> state;
  for (const NamedTensor& each : unbroken.state()) {
    state.push_back({each.name, each.tensor.clone()});
  }
  EXPECT_EQ(state.size(), 9U);
  std::reverse(state.begin(), state.end());
  step_through(unbroken, 2, 5);

  Optimizer resumed(weights, {});
  resumed.set_state(state);
  step_through(resumed, 2, 5);
  expect_equal(resumed.parameters(), unbroken.parameters());
  expect_equal(resumed.state(), unbroken.state());
}

TEST(OptimizerState, IsRefusedWholeIfAPartIsWrong) {
  Optimizer trained(parameters(), {});
  step_through(trained, 0, 2);
  std::vector<NamedTensor> state = trained.state();
  const NamedTensor last = state.back();
  state.pop_back();
  Optimizer fresh(parameters(), {});
  EXPECT_EQ(error_text<InvalidArgument>([&] { fresh.set_state(state); }),
            "[optimizer] the state of b.weight.step is missing");
  state.push_back({last.name, at::ones({2}, at::kLong)});
  EXPECT_EQ(
      error_text<InvalidArgument>([&] { fresh.set_state(state); }),
      "[optimizer] the state of b.weight.step has another shape or type than the parameter's");
  expect_equal(fresh.state(), Optimizer(parameters(), {}).state());
}

}  // namespace
}  // namespace spillway::app
