/// Budgets that only sharding meets: run under mpirun with 2 and 3 ranks, which compute the same.
/// Nothing here can be recomputed, and the host has room for no buffer, nor for a third of one.

#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "spillway/core/error.hpp"
#include "spillway/groups/shard_group.hpp"
#include "spillway/torch/scope.hpp"
#include "support/ranks.hpp"
#include "take_gradients.hpp"
#include "torch/support/training.hpp"

namespace spillway {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Key;
using testing::ranks;

constexpr const char* kNoHost = "[limits]\nhost = '8 KiB'\n";
constexpr const char* kNoHostButShards = "[limits]\nhost = '8 KiB'\nshard = true\n";
constexpr int kSteps = 16;  // Replanned from the times of the first ones.

/// tanh by a loop of its own: no operator that could be repeated makes the result.
struct UnseenTanh : torch::autograd::Function<UnseenTanh> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    at::Tensor y = at::empty(x.sizes());
    const float* from = x.const_data_ptr<float>();
    for (float& each :
         std::span(y.mutable_data_ptr<float>(), static_cast<std::size_t>(y.numel()))) {
      each = std::tanh(*from++);
    }
    context->save_for_backward({y});
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor y = context->get_saved_variables()[0];
    return {gradients[0] * (1 - y * y)};
  }
};

class UnseenTower {
 public:
  UnseenTower() {
    at::manual_seed(3);
    for (int i = 0; i < kLayers; ++i) {
      parameters_.push_back((at::randn({kWidth, kWidth}) * 0.3).set_requires_grad(true));
    }
  }

  [[nodiscard]] std::vector<at::Tensor> parameters() const { return parameters_; }
  [[nodiscard]] static std::vector<at::Tensor> buffers() { return {}; }

  void backpropagate(int seed) const {
    at::manual_seed(static_cast<std::uint64_t>(seed));
    at::Tensor x = at::randn({257, kWidth});
    for (int i = 0; i < kLayers; ++i) {
      const Scope scope("layers." + std::to_string(i));
      x = UnseenTanh::apply(at::linear(x, parameters_[static_cast<std::size_t>(i)]));
    }
    x.sum().backward();
  }

  [[nodiscard]] std::vector<at::Tensor> take_gradients() {
    return testing::take_gradients(parameters_);
  }

 private:
  static constexpr int kLayers = 24;
  static constexpr std::int64_t kWidth = 30;
  std::vector<at::Tensor> parameters_;
};

Session session_with(const char* rules, Budget budget) {
  SessionOptions options = testing::with_rules(rules);
  options.layers = "layers";
  options.budget = budget;
  options.prefetch_window.reset();  // So much would be prefetched.
  options.plan_in_background = false;
  return Session(std::move(options));
}

/// The result of one run of steps.
struct Outcome {
  int different = 0;   ///< Steps whose gradients differ in a bit from those without the session.
  int infeasible = 0;  ///< Steps that did not begin.
  std::string why;
};

Outcome run(Session& session) {
  const testing::Deterministic deterministic;
  UnseenTower tower;
  session.register_model(tower);
  Outcome outcome;
  for (int i = 0; i < kSteps; ++i) {
    tower.backpropagate(i);
    const std::vector<at::Tensor> wanted = tower.take_gradients();
    try {
      const Step step = session.step();
      tower.backpropagate(i);
    } catch (const PlanInfeasible& error) {
      ++outcome.infeasible;
      outcome.why = error.what();
      continue;
    }
    if (testing::count_different(wanted, tower.take_gradients()) > 0) ++outcome.different;
  }
  return outcome;
}

TEST(BudgetThatShards, FitsByShardingAlone) {
  Session session = session_with(kNoHostButShards, Budget::share(0.8));
  session.set_shard_group(shard_group(ranks().everyone()));
  const Outcome outcome = run(session);
  const SessionReport report = session.report();
  EXPECT_EQ(outcome.different, 0);
  EXPECT_EQ(outcome.infeasible, 0) << outcome.why;
  ASSERT_TRUE(report.shard && report.budget);
  EXPECT_GT(report.shard->buffers, 0U) << report;
  EXPECT_EQ(report.shard->gathers, report.shard->buffers);
  EXPECT_LT(report.shard->part_bytes.count(), report.shard->bytes.count() * 6 / 10);
  EXPECT_EQ(report.bytes_out, Bytes(0)) << report;
  EXPECT_EQ(report.repeated_calls, 0U) << report;
  EXPECT_GT(report.budget->measured_peak, Bytes(0));
  EXPECT_LE(report.budget->measured_peak, report.budget->budget) << report;
  // The step that records would offload.
  EXPECT_THAT(report.fallbacks, Each(Key("the host tier is full"))) << report;
}

TEST(BudgetThatShards, HasNoPlanWithoutSharding) {
  Session session = session_with(kNoHost, Budget::share(0.8));
  session.set_shard_group(shard_group(ranks().everyone()));
  const Outcome outcome = run(session);
  EXPECT_EQ(outcome.different, 0);
  EXPECT_EQ(outcome.infeasible, 1);
  EXPECT_THAT(outcome.why, HasSubstr("[plan] no plan fits "));
}

TEST(BudgetThatShards, ReportsOnAllRanksThatNoPlanFits) {
  Session session = session_with(kNoHostButShards, Budget(Bytes(1000)));
  session.set_shard_group(shard_group(ranks().everyone()));
  const Outcome outcome = run(session);
  EXPECT_EQ(outcome.different, 0);
  EXPECT_EQ(outcome.infeasible, 1);
  EXPECT_THAT(outcome.why, HasSubstr("[plan] no plan fits 1000 B: the smallest peak is "));
  EXPECT_THAT(session.report().budget->problem, HasSubstr("[plan] no plan fits 1000 B"));
}

}  // namespace
}  // namespace spillway
