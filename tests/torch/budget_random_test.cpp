// Random models under random budgets: what a step has allocated stays within the budget, and the
// bits are those of a run without Spillway.
#include <algorithm>
#include <chrono>
#include <random>

#include <gtest/gtest.h>

#include "program.hpp"
#include "spillway/core/error.hpp"
#include "spillway/torch/host_memory.hpp"
#include "spillway/torch/scope.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::Program;

using Random = std::mt19937;

/// A stack of layers of random parts, each with a residual or without.
class RandomModel {
 public:
  explicit RandomModel(std::uint64_t seed) {
    Random random(static_cast<std::uint32_t>(seed));
    at::manual_seed(seed);
    rows_ = 32 << (random() % 2);
    width_ = 32 << (random() % 2);
    const std::uint32_t layers = 2 + random() % 4;
    for (std::uint32_t i = 0; i < layers; ++i) {
      parts_.push_back({static_cast<int>(random() % 6), random() % 2 == 0});
      weights_.push_back(testing::weight({width_, width_}));
      weights_.push_back(testing::weight({width_, 2 * width_}));
    }
  }

  [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return weights_; }
  [[nodiscard]] static std::vector<at::Tensor> buffers() { return {}; }

  [[nodiscard]] at::Tensor loss(int batch) const {
    at::Tensor x = (at::arange(rows_ * width_).view({rows_, width_}) * 0.01 + batch).sin();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Scope scope("layers." + std::to_string(i));
      const at::Tensor y = part(parts_[i].kind, x, weights_[2 * i], weights_[2 * i + 1]);
      x = parts_[i].residual ? x + y : y;
    }
    return x.square().mean();
  }

 private:
  struct Part {
    int kind = 0;
    bool residual = false;
  };

  [[nodiscard]] static at::Tensor part(int kind, const at::Tensor& x, const at::Tensor& square,
                                       const at::Tensor& wide) {
    switch (kind) {
      case 0:
        return at::gelu(at::mm(x, square));
      case 1:
        return at::layer_norm(at::mm(x.tanh(), square), {x.size(1)}, {}, {}, 1e-5);
      case 2: {
        const auto halves = at::mm(x, wide).chunk(2, 1);
        return at::silu(halves[0]) * halves[1];
      }
      case 3:
        return at::mm(at::softmax(at::mm(x, x.t()) * 0.1, -1), at::mm(x, square));
      case 4:
        return at::dropout(at::mm(at::relu(x), square), 0.2, true);
      default:
        return at::mm(at::mm(x, wide).sigmoid(), wide.t()) * 0.3;
    }
  }

  std::int64_t rows_ = 0;
  std::int64_t width_ = 0;
  std::vector<Part> parts_;
  std::vector<at::Tensor> weights_;
};

std::int64_t count(Bytes bytes) { return static_cast<std::int64_t>(bytes.count()); }

/// Trains, and tells losses and gradients, and each step's peak above its beginning.
struct Trained {
  std::vector<at::Tensor> values;
  std::vector<std::int64_t> peaks;
};

template <typename AfterStep>
Trained train(std::uint64_t seed, Session* session, int steps, AfterStep&& after_step) {
  const testing::Deterministic deterministic;
  at::set_num_threads(1);
  const RandomModel model(seed);
  if (session != nullptr) session->register_model(model);
  Trained run;
  for (int i = 0; i < steps; ++i) {
    for (at::Tensor each : model.parameters()) each.mutable_grad() = at::Tensor();
    at::manual_seed(static_cast<std::uint64_t>(i));
    const Bytes before = host_memory();
    (void)start_host_memory_peak();
    {
      std::optional<Step> step;
      if (session != nullptr) step.emplace(session->step());
      const at::Tensor loss = model.loss(i);
      loss.backward();
      run.values.push_back(loss.detach().clone());
    }
    run.peaks.push_back(count(host_memory_peak()) - count(before));
    for (const at::Tensor& each : model.parameters()) {
      run.values.push_back(each.grad().defined() ? each.grad().clone() : at::Tensor());
    }
    after_step(i);
  }
  return run;
}

std::int64_t recomputed_bytes(const SessionReport& report) {
  return report.actions.contains("recompute") ? count(report.actions.at("recompute").bytes) : 0;
}

constexpr int kModels = 120;
constexpr int kSteps = 6;

TEST(Budgets, HoldForRandomModels) {
  count_host_memory();
  int infeasible = 0;
  int recomputed = 0;
  int offloaded = 0;
  double worst = 0;
  double worst_proof = 0;
  for (int seed = 0; seed < kModels; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto number = static_cast<std::uint64_t>(seed);
    const Trained without = train(number, nullptr, kSteps, [](int) {});
    const std::int64_t kept = without.peaks.back();
    Random random(static_cast<std::uint32_t>(seed));
    const double share = 0.35 + 0.7 * static_cast<double>(random() % 1000) / 1000;
    const auto budget = static_cast<std::int64_t>(static_cast<double>(kept) * share);

    SessionOptions options;
    options.device = at::kCPU;
    options.small = 1_KiB;
    // With little host memory the planner has to recompute.
    options.host = seed % 2 == 0 ? 64_MiB : 8_KiB;
    options.in_flight = 16_KiB;
    options.ahead = 16_KiB;
    options.budget = Bytes(static_cast<std::uint64_t>(budget));
    options.plan_in_background = false;
    options.planning_time = std::chrono::milliseconds(500);
    Session session(std::move(options));
    std::vector<bool> proves(1, false);
    std::uint64_t plans = 0;
    try {
      const Trained with = train(number, &session, kSteps, [&](int) {
        const SessionReport report = session.report();
        proves.push_back(report.budget->plans != plans && report.actions.contains("recompute"));
        plans = report.budget->plans;
      });
      EXPECT_EQ(testing::count_different(without.values, with.values), 0);
      for (int i = 1; i < kSteps; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const double used = static_cast<double>(with.peaks[at]) / static_cast<double>(budget);
        double& most = proves[at] ? worst_proof : worst;
        most = std::max(most, used);
        // A step that proves has what it recomputes twice.
        const std::int64_t twice = proves[at] ? recomputed_bytes(session.report()) : 0;
        EXPECT_LE(with.peaks[at], budget + twice) << "step " << i << "\n" << session.report();
      }
      for (const auto& [reason, times] : session.report().fallbacks) {
        // While nobody knows yet, everything is to leave.
        EXPECT_EQ(reason, "the host tier is full") << times;
      }
      EXPECT_TRUE(session.report().demoted.empty()) << session.report();
      recomputed += session.report().repeated_calls > 0;
      offloaded += session.report().bytes_out > 0_B;
    } catch (const PlanInfeasible& error) {
      ++infeasible;
      EXPECT_LT(share, 1) << error.what();
    }
  }
  std::cout << kModels << " models: " << infeasible << " budgets too small, " << recomputed
            << " recompute, " << offloaded << " offload; the most that was used of a budget "
            << worst << ", in steps that prove " << worst_proof << "\n";
  EXPECT_LT(infeasible, kModels / 2);
  EXPECT_GT(recomputed, kModels / 8);
  EXPECT_GT(offloaded, kModels / 10);
}

}  // namespace
}  // namespace spillway
