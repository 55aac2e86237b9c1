/// Buffers that are sharded over ranks: run under mpirun with 2 and 3 ranks, which all compute
/// the same unless a case says otherwise.

#include <algorithm>
#include <functional>
#include <span>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "spillway/groups/shard_group.hpp"
#include "spillway/torch/scope.hpp"
#include "support/ranks.hpp"
#include "take_gradients.hpp"
#include "torch/support/training.hpp"
#include "util/digest.hpp"

namespace spillway {
namespace {

using ::testing::Contains;
using testing::difference;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using testing::ranks;
using testing::TinyModel;
using testing::TinyOptions;

constexpr const char* kKept = "[[rule]]\naction = 'keep'\nshard = true\n";
constexpr const char* kOffloaded = "[[rule]]\naction = 'offload'\nshard = true\n";
constexpr const char* kPaddle = "[paddle]\nrecompute_interval = 1\nrecompute_partition = true\n";
constexpr const char* kPaddleOffloaded =
    "[paddle]\nrecompute_interval = 1\nrecompute_partition = true\nrecompute_offload = true\n";
constexpr const char* kMegatron =
    "[megatron]\nrecompute_granularity = 'full'\nrecompute_method = 'uniform'\n"
    "recompute_num_layers = 1\ndistribute_saved_activations = true\n";

/// All ranks, for sessions only.
std::shared_ptr<ShardGroup> everyone() {
  static const std::shared_ptr<ShardGroup> kGroup = shard_group(ranks().everyone());
  return kGroup;
}

SessionOptions options_for(const std::string& rules) {
  SessionOptions options = testing::with_rules(rules);
  options.layers = "layers";
  return options;
}

TinyOptions odd_sizes() { return {.hidden = 60, .vocabulary = 77}; }

/// 2 x 31 tokens of 60 numbers: neither 2 nor 3 ranks get equal parts.
at::Tensor odd_step(TinyModel& model, Step* /*step*/, int i) {
  at::Tensor loss = model.loss(model.tokens(2, 31, i));
  loss.backward();
  return loss;
}

void expect_in_parts(const SessionReport& report) {
  ASSERT_TRUE(report.shard.has_value());
  EXPECT_EQ(report.shard->ranks, ranks().size());
  EXPECT_GT(report.shard->buffers, 0U);
  EXPECT_EQ(report.shard->gathers, report.shard->buffers);
  EXPECT_EQ(report.shard->regathered, 0U);
  // A part is rounded up to 512 bytes.
  const std::uint64_t share = report.shard->bytes.count() / static_cast<unsigned>(ranks().size());
  EXPECT_GE(report.shard->part_bytes.count(), share);
  EXPECT_LE(report.shard->part_bytes.count(), share + 512 * report.shard->buffers);
}

class ShardRules : public ::testing::TestWithParam<const char*> {};

TEST_P(ShardRules, GiveTheSameBits) {
  Session session(options_for(GetParam()));
  session.set_shard_group(everyone());
  EXPECT_EQ(difference(odd_sizes(), session, 5, odd_step), 0);
  const SessionReport report = session.report();
  expect_in_parts(report);
  EXPECT_THAT(report.fallbacks, IsEmpty()) << report;
  EXPECT_THAT(report.shard->mismatched, IsEmpty());
}

TEST_P(ShardRules, GiveTheSameBitsWithPassesInFlight) {
  Session session(options_for(GetParam()));
  session.set_shard_group(everyone());
  const auto offload_window = [](TinyModel& model, Step* step, int i) {
    return testing::gpipe_step(model, step, i, 3);
  };
  EXPECT_EQ(difference(odd_sizes(), session, 5, offload_window), 0);
  expect_in_parts(session.report());
  EXPECT_THAT(session.report().fallbacks, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(, ShardRules,
                         ::testing::Values(kKept, kOffloaded, kPaddle, kPaddleOffloaded,
                                           kMegatron));

/// Layers of a gate and a projection: what they save are windows on what split() was given. Weights
/// stay as they are, and `between` may change what enters a layer.
class Tower {
 public:
  using Between = std::function<at::Tensor(int layer, const at::Tensor& input)>;

  Tower() {
    at::manual_seed(3);
    for (int i = 0; i < kLayers; ++i) {
      for (const auto& sizes : {std::vector<std::int64_t>{2 * kWidth, kWidth}, {kWidth, kWidth}}) {
        parameters_.push_back((at::randn(sizes) * 0.1).set_requires_grad(true));
      }
    }
  }

  [[nodiscard]] std::vector<at::Tensor> parameters() const { return parameters_; }
  [[nodiscard]] static std::vector<at::Tensor> buffers() { return {}; }

  [[nodiscard]] at::Tensor forward(int seed, const Between& between = {}) const {
    at::manual_seed(static_cast<std::uint64_t>(seed));
    at::Tensor x = at::randn({37, kWidth});
    for (int i = 0; i < kLayers; ++i) {
      const Scope scope("layers." + std::to_string(i));
      if (between) x = between(i, x);
      const auto weight = static_cast<std::size_t>(2 * i);
      const auto gates = at::linear(x, parameters_[weight]).split(kWidth, 1);
      const at::Tensor gated = at::tanh(gates[0]) * at::sigmoid(gates[1]);
      x = x + at::dropout(at::linear(gated, parameters_[weight + 1]), 0.2, true);
    }
    return (x * x).sum();
  }

  [[nodiscard]] std::vector<at::Tensor> take_gradients() {
    return testing::take_gradients(parameters_);
  }

 private:
  static constexpr int kLayers = 4;
  static constexpr std::int64_t kWidth = 45;
  std::vector<at::Tensor> parameters_;
};

using TowerStep = std::function<void(Tower& tower, Step* step, int i)>;

/// Steps whose gradients differ in a bit from those without the session.
int different_steps(Session& session, int steps, const TowerStep& run) {
  const testing::Deterministic deterministic;
  Tower tower;
  session.register_model(tower);
  int different = 0;
  for (int i = 0; i < steps; ++i) {
    run(tower, nullptr, i);
    const std::vector<at::Tensor> wanted = tower.take_gradients();
    {
      Step step = session.step();
      run(tower, &step, i);
    }
    if (testing::count_different(wanted, tower.take_gradients()) > 0) ++different;
  }
  return different;
}

/// Neither the values nor the gradients change, but autograd saves one tensor more.
at::Tensor with_one_more_save(const at::Tensor& x) { return x * at::ones_like(x); }

const TowerStep kOrdinaryTower = [](Tower& tower, Step* /*step*/, int i) {
  tower.forward(i).backward();
};

TEST(Shard, ShardsViewsOfOneBufferOnce) {
  Session session(options_for(kKept));
  session.set_shard_group(everyone());
  EXPECT_EQ(different_steps(session, 4, kOrdinaryTower), 0);
  expect_in_parts(session.report());
  EXPECT_THAT(session.report().fallbacks, IsEmpty());
}

constexpr const char* kDiverged = "the pass saved other tensors than profiled";
constexpr const char* kNotTheSame =
    "a pass was not sharded: it was not the same on all ranks of the shard group";

class ShardFallback : public ::testing::TestWithParam<const char*> {};

TEST_P(ShardFallback, OfOneRankKeepsTheBitsOfTheOthers) {
  for (const bool one_less : {false, true}) {
    Session session(options_for(GetParam()));
    session.set_shard_group(everyone());
    const auto run = [&](Tower& tower, Step* /*step*/, int i) {
      const bool odd = ranks().rank() == 1 && i == 3;
      tower
          .forward(i,
                   [&](int layer, const at::Tensor& x) {
                     return layer == 2 && odd != one_less ? with_one_more_save(x) : x;
                   })
          .backward();
    };
    EXPECT_EQ(different_steps(session, 8, run), 0) << one_less;
    const SessionReport report = session.report();
    EXPECT_THAT(report.fallbacks, Contains(Key(kNotTheSame))) << report;
    EXPECT_EQ(report.fallbacks.contains(kDiverged), ranks().rank() == 1) << report;
    expect_in_parts(report);  // When the rank that fell back has recorded again.
  }
}

TEST_P(ShardFallback, OfOnePassInFlightKeepsTheBitsOfTheOthers) {
  Session session(options_for(GetParam()));
  session.set_shard_group(everyone());
  const auto run = [&](Tower& tower, Step* step, int i) {
    std::vector<at::Tensor> losses;
    for (int micro = 0; micro < 3; ++micro) {
      if (step != nullptr) step->pass(0, micro);
      const bool odd = ranks().rank() == 0 && i == 3 && micro == 1;
      losses.push_back(tower.forward(10 * i + micro, [&](int layer, const at::Tensor& x) {
        return layer == 1 && odd ? with_one_more_save(x) : x;
      }));
      if (micro > 0) losses[static_cast<std::size_t>(micro) - 1].backward();
    }
    losses.back().backward();
  };
  EXPECT_EQ(different_steps(session, 8, run), 0);
  EXPECT_THAT(session.report().fallbacks, Contains(Key(kNotTheSame))) << session.report();
  expect_in_parts(session.report());
}

INSTANTIATE_TEST_SUITE_P(, ShardFallback, ::testing::Values(kKept, kOffloaded));

/// From `layer` on every rank computes something else.
Tower::Between other_values_from(int layer) {
  return [layer](int at, const at::Tensor& x) {
    return at == layer ? x + at::tanh(x) * (0.01 * (1 + ranks().rank())) : x;
  };
}

TEST(Shard, RefusesWhatIsNotEqual) {
  Session session(options_for(kKept));
  session.set_shard_group(everyone());
  const auto run = [](Tower& tower, Step* /*step*/, int i) {
    tower.forward(i, other_values_from(2)).backward();
  };
  EXPECT_EQ(different_steps(session, 5, run), 0);
  const SessionReport report = session.report();
  expect_in_parts(report);
  EXPECT_THAT(report.shard->mismatched, Not(IsEmpty()));
  EXPECT_THAT(report.shard->mismatched,
              Each(HasSubstr("it is not equal on all ranks of the shard group")));
  EXPECT_THAT(report.shard->mismatched, Each(Not(HasSubstr("layers.1"))));
  EXPECT_THAT(report.to_text(), HasSubstr("not sharded"));
  EXPECT_THAT(report.actions, Contains(Key("keep, sharded")));
  EXPECT_THAT(report.actions, Contains(Key("keep")));
}

/// Two branches that save tensors of one type; what the second saves differs between ranks. From
/// step 4 on the second runs first.
at::Tensor swapped_branches(Tower& tower, int i) {
  const std::vector<at::Tensor> weights = tower.parameters();
  const auto equal = [&] {
    const at::Tensor y = weights[0].sin();
    return (y * y).sum();
  };
  const auto unequal = [&] {
    const at::Tensor y = weights[2].cos();
    static_cast<float*>(y.data_ptr())[5] = static_cast<float>(ranks().rank());
    return (y * y).sum();
  };
  const at::Tensor first = i < 4 ? equal() : unequal();
  return first + (i < 4 ? unequal() : equal());
}

TEST(Shard, FollowsBranchesThatSwapTheirOrder) {
  for (const char* const rules : {kKept, kOffloaded}) {
    Session session(options_for(rules));
    session.set_shard_group(everyone());
    const auto run = [](Tower& tower, Step* /*step*/, int i) {
      swapped_branches(tower, i).backward();
    };
    EXPECT_EQ(different_steps(session, 8, run), 0);
    const SessionReport report = session.report();
    expect_in_parts(report);
    EXPECT_EQ(report.shard->mismatched.size(), 1U) << report;
    EXPECT_FALSE(report.fallbacks.contains(kDiverged)) << report;
  }
}

TEST(Shard, LeavesOutWhatOneRankSavesInAnotherOrder) {
  Session session(options_for(kKept));
  session.set_shard_group(everyone());
  const auto run = [](Tower& tower, Step* /*step*/, int i) {
    const std::vector<at::Tensor> weights = tower.parameters();
    at::Tensor loss = at::zeros({});
    for (const int n : {0, 1}) {
      const bool swapped = ranks().rank() == 1 && i == 4;
      const at::Tensor y = weights[swapped == (n == 0) ? 2 : 0].sin();
      loss = loss + (y * y).sum();
    }
    loss.backward();
  };
  EXPECT_EQ(different_steps(session, 7, run), 0);
  EXPECT_THAT(session.report().fallbacks, Contains(Key(kNotTheSame))) << session.report();
  expect_in_parts(session.report());
}

TEST(Shard, IsVerifiedAgainInEveryVerifiedStep) {
  SessionOptions options = options_for(kOffloaded);
  options.verify_every = 4;
  Session session(std::move(options));
  session.set_shard_group(everyone());
  const auto run = [](Tower& tower, Step* /*step*/, int i) {
    tower
        .forward(
            i, i < 3 ? Tower::Between()
                     : [](int layer,
                          const at::Tensor&
                              x) { return layer == 3 ? x * (1 + 0.1 * ranks().rank()) : x; })
        .backward();
  };
  EXPECT_EQ(different_steps(session, 6, run), 0);
  EXPECT_THAT(session.report().shard->mismatched, Not(IsEmpty()));
}

TEST(Shard, OutlivesItsStep) {
  Session session(options_for(kOffloaded));
  session.set_shard_group(everyone());
  const auto run = [](Tower& tower, Step* step, int i) {
    const at::Tensor loss = tower.forward(i);
    if (step != nullptr && i == 3) step->end();
    loss.backward();
  };
  EXPECT_EQ(different_steps(session, 5, run), 0);
  expect_in_parts(session.report());
}

TEST(Shard, GathersForTheOthersWhatOneRankStillHolds) {
  for (const char* const rules : {kKept, kOffloaded}) {
    Session session(options_for(rules));
    session.set_shard_group(everyone());
    const auto run = [](Tower& tower, Step* /*step*/, int i) {
      std::vector<at::Tensor> held;
      const at::Tensor loss = tower.forward(i, [&](int layer, const at::Tensor& x) {
        if (layer % 2 == 1) held.push_back(x.detach());
        return x;
      });
      // A step that records would leave to their owner what is held.
      if (i < 3 || ranks().rank() != 1) held.clear();
      // By no operator: nobody sees it, but autograd reads what is there.
      for (const at::Tensor& each : held) {
        for (float& number :
             std::span(each.mutable_data_ptr<float>(), static_cast<std::size_t>(each.numel()))) {
          number *= 1.25F;
        }
      }
      loss.backward();
    };
    EXPECT_EQ(different_steps(session, 6, run), 0) << rules;
    const SessionReport report = session.report();
    expect_in_parts(report);
    if (ranks().rank() == 1) {
      EXPECT_GE(report.used_in_place, 2U) << report;
    }
    EXPECT_THAT(report.fallbacks, IsEmpty()) << report;
  }
}

TEST(Shard, IsAnErrorInTheNextStepWhereRanksHaveGatheredInDifferentOrders) {
  for (const char* const rules : {kKept, kOffloaded}) {
    Session session(options_for(rules));
    session.set_shard_group(everyone());
    // Both passes save the same sizes, so gathers of one meet those of the other unnoticed.
    const auto run = [](Tower& tower, Step* step, int i) {
      std::vector<at::Tensor> losses;
      for (int micro = 0; micro < 2; ++micro) {
        if (step != nullptr) step->pass(0, micro);
        losses.push_back(tower.forward(10 * i + micro));
      }
      if (step != nullptr && i == 4 && ranks().rank() == 1) std::ranges::reverse(losses);
      for (const at::Tensor& each : losses) each.backward();
    };
    EXPECT_EQ(different_steps(session, 4, run), 0) << rules;
    Tower tower;
    session.register_model(tower);
    {
      Step step = session.step();
      run(tower, &step, 4);
    }
    for (int i = 0; i < 2; ++i) EXPECT_THROW((void)session.step(), VerificationError) << rules;
    session.set_shard_group(everyone());
    EXPECT_EQ(different_steps(session, 4, kOrdinaryTower), 0) << rules;
  }
}

TEST(Shard, FreesPassesThatNeverGetABackward) {
  Session session(options_for(kKept));
  session.set_shard_group(everyone());
  const auto run = [](Tower& tower, Step* step, int i) {
    if (step != nullptr) step->pass(0, 0);
    if (i == 3) (void)tower.forward(100 + i);
    if (step != nullptr) step->pass(0, 1);
    tower.forward(i).backward();
  };
  EXPECT_EQ(different_steps(session, 5, run), 0);
  expect_in_parts(session.report());
}

TEST(Shard, IsLeftOutWithoutAGroup) {
  for (const bool alone : {false, true}) {
    Session session(options_for(kKept));
    if (alone) session.set_shard_group(shard_group(Group(ranks().rank())));
    EXPECT_EQ(different_steps(session, 3, kOrdinaryTower), 0);
    const SessionReport report = session.report();
    EXPECT_EQ(report.shard->buffers, 0U);
    EXPECT_EQ(report.shard->ranks, alone ? 1 : 0);
    EXPECT_THAT(report.fallbacks,
                Contains(Key("a step was not sharded: there is no shard group of several ranks")));
  }
}

/// Whether all ranks gave the same text.
bool all_the_same(const std::string& text) {
  Digest digest;
  digest.add(text);
  const auto word = static_cast<std::int64_t>(digest.value());
  const at::Tensor all = ranks().everyone().all_gather(at::full({1}, word, at::kLong));
  return all.eq(word).all().item<bool>();
}

class ShardBudget : public ::testing::TestWithParam<const char*> {};

TEST_P(ShardBudget, GivesAllRanksOnePlan) {
  for (const bool background : {false, true}) {
    SessionOptions options = options_for(GetParam());
    const bool pinned = std::string(GetParam()).starts_with("[[rule]]");
    options.budget = Budget::share(pinned ? 0.9 : 0.75);
    options.plan_in_background = background;
    Session session(std::move(options));
    session.set_shard_group(everyone());
    // Times are measured three times, in up to four steps each, and plans replaced.
    EXPECT_EQ(different_steps(session, background ? 6 : 40, kOrdinaryTower), 0);
    if (background) continue;  // It may not be there yet.
    const SessionReport report = session.report();
    ASSERT_NE(session.plan(), nullptr);
    ASSERT_TRUE(session.plan()->budget.has_value()) << report;
    EXPECT_TRUE(all_the_same(to_json(*session.plan()))) << report;
    EXPECT_FALSE(report.fallbacks.contains(
        "a step was not sharded: a rank of the shard group recorded, or had another plan"))
        << report;
    EXPECT_LE(report.budget->measured_peak, report.budget->budget) << report;
    if (pinned) expect_in_parts(report);
  }
}

INSTANTIATE_TEST_SUITE_P(, ShardBudget,
                         ::testing::Values("[limits]\nshard = true\n",
                                           "[[rule]]\nsaved_by = 'aten::mm*'\naction = 'keep'\n"
                                           "shard = true\n"));

TEST(Shard, KeepsAPartOnTheDevice) {
  Session session(options_for(kKept));
  session.set_shard_group(everyone());
  ASSERT_EQ(difference({.layers = 6}, session, 4, testing::single_step), 0);
  const SessionReport report = session.report();
  // Beside the parts there are buffers not yet sharded, and buffers gathered early.
  const std::uint64_t most =
      report.shard->part_bytes.count() + (256U << 10U) + report.saved_peak_without.count() / 8;
  EXPECT_LT(report.saved_peak_with.count(), most) << report;
}

}  // namespace
}  // namespace spillway
