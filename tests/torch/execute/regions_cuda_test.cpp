// Steps without a plan whose activations exceed device and host memory, on a GPU.
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include "spillway/torch/scope.hpp"
#include "spillway/torch/session.hpp"
#include "torch/support/tiny_model.hpp"

// Test sources are compiled together, so common names need a namespace of their own.
namespace spillway::regions_on_cuda {
namespace {

using namespace spillway::literals;

constexpr int kLayers = 8;
constexpr std::int64_t kTokens = 4096;
constexpr std::int64_t kWidth = 512;
constexpr std::int64_t kFactor = 8;

std::vector<at::Tensor> make_weights() {
  at::manual_seed(5);
  const auto options = at::TensorOptions(at::Device(at::kCUDA, 0)).dtype(at::kBFloat16);
  std::vector<at::Tensor> all;
  for (int i = 0; i < kLayers; ++i) {
    all.push_back(at::randn({kFactor * kWidth, kWidth}, options).mul_(0.05));
    all.push_back(at::randn({kWidth, kFactor * kWidth}, options).mul_(0.05));
  }
  for (at::Tensor& each : all) {
    each.set_requires_grad(true);
    each.mutable_grad() = at::zeros_like(each);
  }
  return all;
}

at::Tensor loss_of(const std::vector<at::Tensor>& weights, double dropout) {
  at::Tensor x = at::randn({kTokens, kWidth}, weights[0].options());
  for (std::size_t i = 0; i < weights.size(); i += 2) {
    const Scope scope("layers." + std::to_string(i / 2));
    const at::Tensor up = at::linear(at::layer_norm(x, {kWidth}), weights[i]);
    x = x + at::dropout(at::linear(at::gelu(up), weights[i + 1]), dropout, true);
  }
  return x.to(at::kFloat).square().mean();
}

std::vector<at::Tensor> train(Session* session, int steps, std::vector<Bytes>* peaks) {
  std::vector<at::Tensor> weights = make_weights();
  if (session != nullptr) {
    for (const at::Tensor& each : weights) session->register_fixed(each, FixedReason::kParameter);
  }
  std::vector<at::Tensor> values;
  for (int i = 0; i < steps; ++i) {
    at::manual_seed(static_cast<std::uint64_t>(i));
    {
      std::optional<Step> step;
      if (session != nullptr) step.emplace(session->step());
      at::Tensor loss = loss_of(weights, 0.1);
      loss.backward();
      values.push_back(loss.detach().clone());
      if (step) step->end();
    }
    if (peaks != nullptr) peaks->push_back(session->last_step()->peak);
    for (at::Tensor& each : weights) {
      values.push_back(each.grad().clone());
      each.mutable_grad().zero_();
    }
  }
  return values;
}

TEST(RegionsCuda, TrainAModelThatNoMemoryHoldsAsAWhole) {
  if (c10::cuda::device_count() == 0) GTEST_SKIP() << "skipped: no CUDA device";
  const testing::Deterministic deterministic;
  const std::vector<at::Tensor> without = train(nullptr, 6, nullptr);
  const std::uint64_t layer = kTokens * kWidth * (2 + 2 * kFactor + 1) * 2;  // The mask is a half.
  SessionOptions options;
  options.device = at::Device(at::kCUDA, 0);
  options.budget = Bytes(kLayers * layer / 4);
  options.host = Bytes(kLayers * layer / 10);
  options.plan_in_background = false;
  options.regions = true;
  Session session(options);
  std::vector<Bytes> peaks;
  EXPECT_EQ(testing::count_different(without, train(&session, 6, &peaks)), 0);
  const SessionReport report = session.report();
  EXPECT_GT(report.regions.regions, 2U) << report;
  EXPECT_EQ(report.regions.mismatched, 0U) << report;
  EXPECT_LE(report.host_peak, options.host) << report;
  // What full checkpointing needs: a layer, and the gradients of its widest values.
  EXPECT_LE(peaks.front(), Bytes(kLayers * layer / 2)) << report;
  EXPECT_EQ(report.device_now, 0_B);
}

}  // namespace
}  // namespace spillway::regions_on_cuda
