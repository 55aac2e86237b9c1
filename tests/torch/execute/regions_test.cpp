// Steps without a plan whose activations exceed device and host memory.
#include <chrono>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/plan/profile.hpp"
#include "spillway/torch/scope.hpp"
#include "torch/support/failing_allocator.hpp"
#include "torch/support/program.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::Program;

/// What a layer computes from its input and its two weights.
using Layer = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& up,
                                       const at::Tensor& down, int number)>;

at::Tensor mlp(const at::Tensor& x, const at::Tensor& up, const at::Tensor& down, int /*number*/) {
  return x + at::linear(at::gelu(at::linear(at::layer_norm(x, {x.size(-1)}), up)), down);
}

/// A stack of layers whose activations are much larger than their inputs.
struct Stack {
  int layers = 24;
  std::int64_t tokens = 128;
  std::int64_t width = 32;
  std::int64_t factor = 16;
  bool scopes = true;
  int micro_batches = 1;
  Layer layer = mlp;

  [[nodiscard]] std::vector<at::Tensor> weights() const {
    std::vector<at::Tensor> all;
    for (int i = 0; i < layers; ++i) {
      all.push_back(testing::weight({width * factor, width}));
      all.push_back(testing::weight({width, width * factor}));
      // Gradients are there before the step, as in a loop that does not free them.
      for (std::size_t j = all.size() - 2; j < all.size(); ++j) {
        all[j].mutable_grad() = at::zeros_like(all[j]);
      }
    }
    return all;
  }
  [[nodiscard]] at::Tensor forward(const std::vector<at::Tensor>& all) const {
    at::Tensor x = at::randn({tokens, width});
    for (std::size_t i = 0; i < all.size(); i += 2) {
      const int number = static_cast<int>(i / 2);
      std::optional<Scope> scope;
      if (scopes) scope.emplace("layers." + std::to_string(number));
      x = layer(x, all[i], all[i + 1], number);
    }
    return x.square().mean();
  }
  [[nodiscard]] Bytes activations() const {
    const std::int64_t elements = tokens * width * (2 + 2 * factor) * layers;
    return Bytes(static_cast<std::uint64_t>(elements) * sizeof(float));
  }
};

/// Losses and gradients of some steps; `after` looks at the session after each.
std::vector<at::Tensor> train(const Stack& stack, Session* session, int steps,
                              const std::function<void(int)>& after = {}) {
  at::manual_seed(5);
  std::vector<at::Tensor> weights = stack.weights();
  if (session != nullptr) {
    for (const at::Tensor& each : weights) session->register_fixed(each, FixedReason::kParameter);
  }
  std::vector<at::Tensor> values;
  for (int i = 0; i < steps; ++i) {
    for (at::Tensor& each : weights) each.mutable_grad().zero_();
    at::manual_seed(static_cast<std::uint64_t>(i));
    {
      std::optional<Step> step;
      if (session != nullptr) step.emplace(session->step());
      for (int micro = 0; micro < stack.micro_batches; ++micro) {
        at::Tensor loss = stack.forward(weights);
        loss.backward();
        values.push_back(loss.detach().clone());
      }
      if (step) step->end();
    }
    if (after) after(i);
    for (at::Tensor& each : weights) values.push_back(each.grad().clone());
    const at::NoGradGuard guard;
    for (at::Tensor& each : weights) each.add_(each.grad(), -0.05);
  }
  return values;
}

int difference_of(const Stack& stack, Session& session, int steps,
                  const std::function<void(int)>& after = {}) {
  const testing::Deterministic deterministic;
  at::set_num_threads(1);
  const auto without = train(stack, nullptr, steps);
  return testing::count_different(without, train(stack, &session, steps, after));
}

SessionOptions limited(Bytes device, Bytes host) {
  SessionOptions options;
  options.device = at::kCPU;
  options.small = 1_KiB;
  options.budget = device;
  options.plan_in_background = false;
  options.planning_time = std::chrono::milliseconds(500);
  options.host = host;
  options.regions = true;
  return options;
}

TEST(Regions, AreCutWhereHostMemoryHasNoRoomForAll) {
  const Stack stack;
  Session session(limited(2_MiB, 1_MiB));
  EXPECT_EQ(difference_of(stack, session, 1), 0);
  const SessionReport report = session.report();
  EXPECT_GT(report.regions.regions, 10U) << report;
  EXPECT_EQ(report.regions.mismatched, 0U) << report;
  EXPECT_LE(report.host_peak, 1_MiB);
  EXPECT_LE(report.last_step->peak, 2_MiB) << report;
  EXPECT_EQ(report.device_now, 0_B);
  EXPECT_EQ(report.host_now, 0_B);
}

TEST(Regions, AreNotCutWhereHostMemoryHasRoom) {
  Session session(limited(2_MiB, 256_MiB));
  EXPECT_EQ(difference_of({}, session, 1), 0);
  EXPECT_EQ(session.report().regions.regions, 0U);
}

TEST(Regions, TrainWhatIsTenTimesAsLargeAsDeviceAndHost) {
  const Stack stack{.layers = 44, .tokens = 256, .factor = 32};
  const Bytes device = 7_MiB;
  const Bytes host = 1536_KiB;
  ASSERT_GE(stack.activations(), Bytes(10 * (device + host).count()));
  Session session(limited(device, host));
  const auto look = [&](int) {
    const SessionReport report = session.report();
    EXPECT_LE(report.host_peak, host) << report;
    // A verification step has some originals beside what its plan keeps.
    const bool verified = report.last_step->kind == StepKind::kVerification;
    EXPECT_LE(report.last_step->peak, verified ? Bytes(device.count() * 5 / 4) : device) << report;
  };
  EXPECT_EQ(difference_of(stack, session, 4, look), 0);
  const SessionReport report = session.report();
  EXPECT_TRUE(report.demoted.empty()) << report;
  EXPECT_EQ(report.budget->problem, "") << report;
  EXPECT_GT(report.repeated_calls, 0U) << report;
}

TEST(Regions, EndWhereTheyHaveTakenTheirShareOfTheBudget) {
  const Stack stack{.scopes = false};
  Session session(limited(3_MiB, 1_MiB));
  const auto look = [&](int i) {
    const SessionReport report = session.report();
    if (i > 0) return;
    EXPECT_GT(report.regions.regions, 5U) << report;
    EXPECT_LE(report.last_step->peak, 3_MiB) << report;
  };
  EXPECT_EQ(difference_of(stack, session, 4, look), 0);
}

struct Case {
  std::string name;
  Layer layer;
};

std::ostream& operator<<(std::ostream& out, const Case& each) { return out << each.name; }

class RegionsOf : public ::testing::TestWithParam<Case> {};

TEST_P(RegionsOf, GiveTheSameBits) {
  for (const bool scopes : {true, false}) {
    Stack stack{.layers = 12, .scopes = scopes, .layer = GetParam().layer};
    SessionOptions options = limited(3_MiB, 512_KiB);
    options.strict = false;
    Session session(std::move(options));
    int steps = 0;
    EXPECT_EQ(difference_of(stack, session, 5, [&](int) { ++steps; }), 0);
    EXPECT_EQ(steps, 5);
    EXPECT_GT(session.report().regions.discarded.buffers, 5U) << session.report();
    EXPECT_EQ(session.report().device_now, 0_B);
    EXPECT_EQ(session.report().host_now, 0_B);
  }
}

at::Tensor with_dropout(const at::Tensor& x, const at::Tensor& up, const at::Tensor& down, int) {
  const at::Tensor h =
      at::dropout(at::gelu(at::linear(at::layer_norm(x, {x.size(-1)}), up)), 0.2, true);
  return x + at::dropout(at::linear(h, down), 0.1, true);
}

at::Tensor in_place(const at::Tensor& x, const at::Tensor& up, const at::Tensor& down, int) {
  at::Tensor h = at::linear(at::layer_norm(x, {x.size(-1)}), up);
  h = h.mul_(0.5).relu_();
  at::Tensor y = at::linear(h, down);
  return y.add_(x);
}

/// The input is not saved, and written in place at the end of the layer.
at::Tensor residual_in_place(const at::Tensor& x, const at::Tensor& up, const at::Tensor& down,
                             int number) {
  const at::Tensor y = at::linear(at::gelu(at::linear(x + 0.5, up)), down);
  if (number == 0) return x + y;
  at::Tensor stream = x;
  stream.add_(y);
  return stream;
}

/// What enters a layer is what the one before it has saved.
at::Tensor relu_stack(const at::Tensor& x, const at::Tensor& up, const at::Tensor& down, int) {
  return at::relu(at::linear(at::relu(at::linear(x, up)), down));
}

at::Tensor with_views(const at::Tensor& x, const at::Tensor& up, const at::Tensor& down, int) {
  const std::int64_t width = x.size(-1);
  const at::Tensor qkv = at::linear(at::layer_norm(x, {width}), up).view({1, -1, up.size(0)});
  const auto parts = qkv.split(width, -1);
  const at::Tensor heads =
      at::scaled_dot_product_attention(parts[0].view({1, -1, 2, width / 2}).transpose(1, 2),
                                       parts[1].view({1, -1, 2, width / 2}).transpose(1, 2),
                                       parts[2].view({1, -1, 2, width / 2}).transpose(1, 2));
  const at::Tensor merged = heads.transpose(1, 2).reshape({-1, width});
  return x + merged + at::linear(at::silu(qkv[0]), down);
}

at::Tensor with_branches(const at::Tensor& x, const at::Tensor& up, const at::Tensor& down, int) {
  const at::Tensor n = at::layer_norm(x, {x.size(-1)});
  const at::Tensor gate = at::sigmoid(at::linear(n, up));
  const at::Tensor value = at::tanh(at::linear(n, up));
  return x + at::linear(gate * value, down);
}

INSTANTIATE_TEST_SUITE_P(Layers, RegionsOf,
                         ::testing::Values(Case{"Dropout", with_dropout}, Case{"InPlace", in_place},
                                           Case{"ResidualInPlace", residual_in_place},
                                           Case{"ReluStack", relu_stack}, Case{"Views", with_views},
                                           Case{"Branches", with_branches}),
                         [](const auto& each) { return each.param.name; });

TEST(Regions, ShareTensorsOverLayers) {
  at::Tensor bias;
  Stack stack{.layers = 12};
  stack.layer = [&bias](const at::Tensor& x, const at::Tensor& up, const at::Tensor& down,
                        int number) {
    if (number == 0) bias = at::tanh(at::linear(x, up));
    const at::Tensor h = at::gelu(at::linear(at::layer_norm(x, {x.size(-1)}), up)) * bias;
    if (number == 11) bias = at::Tensor();
    return x + at::linear(h, down);
  };
  Session session(limited(4_MiB, 1_MiB));
  const auto look = [&](int i) {
    if (i == 0) {
      EXPECT_LE(session.report().last_step->peak, 4_MiB) << session.report();
    }
  };
  EXPECT_EQ(difference_of(stack, session, 4, look), 0);
  EXPECT_GT(session.report().regions.regions, 3U) << session.report();
}

TEST(Regions, StartFromWhatTheLayerBeforeHasSaved) {
  // Each layer starts from what the one before it saved: recomputing that from its own inputs would
  // need all layers at once.
  Stack stack{.layers = 24, .layer = relu_stack};
  Session session(limited(2_MiB, 1_MiB));
  EXPECT_EQ(difference_of(stack, session, 1), 0);
  EXPECT_LE(session.report().last_step->peak, 2_MiB) << session.report();
}

TEST(Regions, SurviveAnExceptionInForward) {
  int forwards = 0;
  Stack stack{.layers = 12};
  stack.layer = [&](const at::Tensor& x, const at::Tensor& up, const at::Tensor& down, int number) {
    const at::Tensor y = mlp(x, up, down, number);
    if (number == 8 && ++forwards == 1) throw std::runtime_error("half-way");
    return y;
  };
  Session session(limited(2_MiB, 512_KiB));
  const testing::Deterministic deterministic;
  EXPECT_THROW((void)train(stack, &session, 1), std::runtime_error);
  EXPECT_EQ(session.report().device_now, 0_B);
  EXPECT_EQ(session.report().host_now, 0_B);
  EXPECT_EQ(difference_of(stack, session, 4), 0);
  EXPECT_TRUE(session.report().demoted.empty()) << session.report();
}

TEST(Regions, GoOnWhereThereIsNoMemoryToRecompute) {
  testing::FailingAllocator allocator;
  Stack stack{.layers = 12};
  const std::size_t wide =
      static_cast<std::size_t>(stack.tokens * stack.width * stack.factor) * sizeof(float);
  bool armed = false;
  stack.layer = [&](const at::Tensor& x, const at::Tensor& up, const at::Tensor& down, int number) {
    const at::Tensor y = mlp(x, up, down, number);
    // The next region ends with the next call, and has no memory for its widest buffers.
    allocator.fail(armed && number == 8 ? wide : 0);
    const at::Tensor same = y.view({-1, x.size(-1)});
    allocator.fail(0);
    return same;
  };
  stack.scopes = false;
  Session session(limited(2_MiB, 1_MiB));
  const testing::Deterministic deterministic;
  const auto without = train(stack, nullptr, 1);
  armed = true;
  EXPECT_EQ(testing::count_different(without, train(stack, &session, 1)), 0);
  EXPECT_EQ(session.report().device_now, 0_B);
}

}  // namespace
}  // namespace spillway
