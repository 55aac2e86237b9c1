// What a pass saves finds its decision by how it was made, not by when it is saved, and nothing is
// recomputed that was not verified in this form.
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/torch/scope.hpp"
#include "torch/support/training.hpp"

namespace spillway {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using testing::offload_everything;
using testing::recompute_everything;
using testing::with_rules;

constexpr const char* kDiverged = "the pass saved other tensors than profiled";
constexpr const char* kNotVerified =
    "a recipe was not verified yet: its buffer was offloaded, and compared";

using Weights = std::vector<at::Tensor>;
/// Step `i` of a program on an input and its weights; returns the loss.
using Program = std::function<at::Tensor(const at::Tensor& input, const Weights& weights, int i)>;
using AfterStep = std::function<void(int i)>;

constexpr std::int64_t kWidth = 64;

/// Steps whose gradients differ in a bit from those without the session.
int different_steps(Session& session, std::size_t count, int steps, const Program& program,
                    const AfterStep& after = {}) {
  const testing::Deterministic deterministic;
  at::manual_seed(3);
  Weights weights;
  for (std::size_t i = 0; i < count; ++i) {
    weights.push_back((at::randn({kWidth, kWidth}) * 0.1).set_requires_grad(true));
    session.register_fixed(weights.back(), FixedReason::kParameter);
  }
  const at::Tensor input = at::randn({kWidth, kWidth});
  const auto gradients = [&](int i) {
    at::manual_seed(static_cast<std::uint64_t>(i));
    program(input, weights, i).backward();
    Weights taken;
    for (at::Tensor& weight : weights) {
      taken.push_back(weight.grad());
      weight.mutable_grad() = at::Tensor();
    }
    return taken;
  };
  int different = 0;
  for (int i = 0; i < steps; ++i) {
    const Weights wanted = gradients(i);
    Weights found;
    {
      const Step step = session.step();
      found = gradients(i);
    }
    different += testing::count_different(wanted, found) > 0 ? 1 : 0;
    if (after) after(i);
  }
  return different;
}

/// As a kernel of one's own would, which the dispatcher does not see.
void write_unseen(const at::Tensor& x) { static_cast<float*>(x.data_ptr())[5] = 7; }

at::Tensor loss_of(const at::Tensor& x) { return (x * x).sum(); }

/// Both save a tensor of the same type.
at::Tensor clean_branch(const at::Tensor& x) { return loss_of(x.sin()); }
at::Tensor written_branch(const at::Tensor& x) {
  const at::Tensor y = x.cos();
  write_unseen(y);
  return loss_of(y);
}

TEST(Matching, FollowsBranchesThatSwapTheirOrder) {
  for (const std::size_t other : {0, 1}) {  // Of one weight, and of a weight each.
    Session session(recompute_everything());
    const auto program = [&](const at::Tensor&, const Weights& weights, int i) {
      // Operands of + may be computed in any order.
      const bool swapped = i >= 4;
      const at::Tensor first = swapped ? written_branch(weights[other]) : clean_branch(weights[0]);
      const at::Tensor second = swapped ? clean_branch(weights[0]) : written_branch(weights[other]);
      return first + second;
    };
    EXPECT_EQ(different_steps(session, 2, 8, program), 0);
    const SessionReport report = session.report();
    EXPECT_EQ(report.demoted.size(), 1U) << report;
    EXPECT_GT(report.repeated_calls, 0U) << report;
    EXPECT_THAT(report.fallbacks, Not(Contains(Key(kDiverged)))) << report;
    EXPECT_EQ(report.recorded_steps, 1U);
  }
}

TEST(Matching, FollowsBranchesOfActivations) {
  Session session(recompute_everything());
  const auto program = [](const at::Tensor& input, const Weights& weights, int i) {
    const auto clean = [&] { return loss_of((input.mm(weights[0]) + 1).tanh() * 2); };
    const auto written = [&] {
      const at::Tensor y = (input.mm(weights[1]) + 1).tanh() * 2;
      write_unseen(y);
      return loss_of(y);
    };
    const at::Tensor first = i < 4 ? clean() : written();
    return first + (i < 4 ? written() : clean());
  };
  EXPECT_EQ(different_steps(session, 2, 8, program), 0);
  EXPECT_EQ(session.report().demoted.size(), 1U) << session.report();
  EXPECT_THAT(session.report().fallbacks, Not(Contains(Key(kDiverged)))) << session.report();
}

TEST(Matching, VerifiesWhatIsMadeThroughARecipeThatItHasNotSeen) {
  Session session(recompute_everything());
  const auto program = [](const at::Tensor& input, const Weights& weights, int i) {
    at::Tensor x = input;
    if (i != 1) {  // Left out in the step that verifies.
      x = input.mm(weights[0]).cos();
      write_unseen(x);
    }
    return loss_of(x.mm(weights[1]).tanh());  // A product with a weight has one signature.
  };
  EXPECT_EQ(different_steps(session, 2, 6, program), 0) << session.report();
  EXPECT_GT(session.report().repeated_calls, 0U) << session.report();
}

TEST(Matching, TrustsWhatSharesASignatureTogetherOrNotAtAll) {
  // The same operator on the same weight, and only one of the results is written.
  Session session(recompute_everything());
  const auto program = [](const at::Tensor&, const Weights& weights, int i) {
    at::Tensor loss = at::zeros({});
    for (const bool written : {i < 4, i >= 4}) {
      const at::Tensor y = weights[0].sin();
      if (written) write_unseen(y);
      loss = loss + loss_of(y);
    }
    return loss;
  };
  EXPECT_EQ(different_steps(session, 1, 8, program), 0);
  const SessionReport report = session.report();
  EXPECT_EQ(report.demoted.size(), 2U) << report;
  EXPECT_THAT(report.demoted, Contains(HasSubstr("another buffer with its signature")));
}

TEST(Matching, ComparesWhatSharesASignatureAlsoWhereThePlanKeepsIt) {
  // Where the two swap, the plan recomputes the one that it kept before.
  Session session(with_rules(
      "[[rule]]\nscope = \"first\"\naction = \"recompute\"\n[[rule]]\naction = \"keep\"\n"));
  const auto program = [](const at::Tensor&, const Weights& weights, int i) {
    at::Tensor loss = at::zeros({});
    for (const bool first : {true, false}) {
      const Scope scope(first ? "first" : "second");
      const at::Tensor y = weights[0].sin();
      if (first == (i >= 4)) write_unseen(y);
      loss = loss + loss_of(y);
    }
    return loss;
  };
  EXPECT_EQ(different_steps(session, 1, 8, program), 0);
  EXPECT_THAT(session.report().demoted, Contains(HasSubstr("another buffer with its signature")));
}

TEST(Matching, MovesNothingThatIsWrittenLaterWhereBranchesSwap) {
  // A plan that only offloads records no operators, but where it must tell such tensors apart.
  SessionOptions options = offload_everything();
  options.offload_window = Bytes(0);
  Session session(std::move(options));
  const auto program = [](const at::Tensor&, const Weights& weights, int i) {
    const auto branch = [&](std::size_t weight, bool written) {
      const at::Tensor y = weights[weight].sin();
      const at::Tensor loss = loss_of(y);
      if (written) y.variable_data().add_(1);
      return loss;
    };
    const bool swapped = i >= 4;
    const at::Tensor first = branch(swapped ? 1 : 0, swapped);
    return first + branch(swapped ? 0 : 1, !swapped);
  };
  EXPECT_EQ(different_steps(session, 2, 8, program), 0);
}

TEST(Matching, VerifiesARecipeThatItHasNotSeen) {
  // From step 5 on something else is added; no saved tensor shows it but by its bits.
  Session session(recompute_everything());
  const auto program = [](const at::Tensor& input, const Weights& weights, int i) {
    const at::Tensor x = input.mm(weights[0]);
    at::Tensor a = i < 5 ? x.sin() : x.cos();
    if (i >= 5) write_unseen(a);
    return loss_of(a + input.mm(weights[1]));
  };
  EXPECT_EQ(different_steps(session, 2, 10, program), 0);
  const SessionReport report = session.report();
  EXPECT_EQ(report.fallbacks.at(kNotVerified), 1U) << report;
  EXPECT_EQ(report.demoted.size(), 1U) << report;
  EXPECT_EQ(report.recorded_steps, 1U);
}

TEST(Matching, RecordsAndVerifiesABranchThatAppearsLater) {
  for (const bool first : {false, true}) {
    Session session(recompute_everything());
    const auto program = [&](const at::Tensor&, const Weights& weights, int i) {
      at::Tensor loss = at::zeros({});
      if (first && i >= 10) loss = loss + written_branch(weights[1]);
      loss = loss + clean_branch(weights[0]);
      if (!first && i >= 10) loss = loss + written_branch(weights[1]);
      return loss;
    };
    EXPECT_EQ(different_steps(session, 2, 16, program), 0);
    const SessionReport report = session.report();
    EXPECT_EQ(report.fallbacks.at(kDiverged), 1U) << report;
    EXPECT_EQ(report.recorded_steps, 2U) << report;
    EXPECT_EQ(report.demoted.size(), 1U) << report;
    EXPECT_GT(report.repeated_calls, 0U) << report;
  }
}

TEST(Matching, KeepsThePlanWhenTheOrderOfSavesChanges) {
  for (const SessionOptions& options : {recompute_everything(), offload_everything()}) {
    Session session(options);
    const auto program = [](const at::Tensor& input, const Weights& weights, int i) {
      at::Tensor loss = at::zeros({});
      for (std::size_t n = 0; n < weights.size(); ++n) {
        const at::Tensor& weight = weights[(n + static_cast<std::size_t>(i)) % weights.size()];
        loss = loss + loss_of(input.mm(weight).tanh().sigmoid());
      }
      return loss;
    };
    EXPECT_EQ(different_steps(session, 4, 10, program), 0);
    const SessionReport report = session.report();
    EXPECT_THAT(report.fallbacks, IsEmpty()) << report;
    EXPECT_EQ(report.recorded_steps, 1U);
  }
}

/// Residual layers with dropout, some of which are left out.
Program layers_without(std::function<bool(int layer, int i)> left_out) {
  return [left_out = std::move(left_out)](const at::Tensor& input, const Weights& weights, int i) {
    at::Tensor x = input.mm(weights[0]);
    for (int layer = 0; layer < 4; ++layer) {
      if (left_out(layer, i)) continue;
      const Scope scope("layers." + std::to_string(layer));
      const auto first = static_cast<std::size_t>(2 * layer + 1);
      const at::Tensor h = at::gelu(at::layer_norm(x, {kWidth}).mm(weights[first]));
      x = x + at::dropout(h.mm(weights[first + 1]), 0.1, true);
    }
    return loss_of(at::layer_norm(x, {kWidth}).mm(weights[9]));
  };
}
constexpr std::size_t kLayerWeights = 10;

/// All layers run until the plan has been verified.
bool is_left_out(int layer, int i) {
  return i >= 3 &&
         (static_cast<unsigned>(i * 2654435761U) >> static_cast<unsigned>(layer + 9)) % 3 == 0;
}

TEST(LayerDrop, SkipsALayerAndKeepsTheDecisionsOfTheOthers) {
  for (const char* const rules :
       {"[[rule]]\naction = \"recompute\"\n", "[[rule]]\naction = \"offload\"\n",
        "[[rule]]\nproducer = \"aten::gelu\"\naction = \"recompute\"\n[[rule]]\naction = "
        "\"offload\"\n"}) {
    Session session(with_rules(rules));
    EXPECT_EQ(different_steps(session, kLayerWeights, 30, layers_without(is_left_out)), 0) << rules;
    const SessionReport report = session.report();
    EXPECT_THAT(report.fallbacks, IsEmpty()) << report;
    EXPECT_THAT(report.demoted, IsEmpty()) << report;
    EXPECT_EQ(report.recorded_steps, 1U);
  }
}

TEST(LayerDrop, RecomputesOnlyTheLayerThatThePlanNames) {
  Session session(
      with_rules("[[rule]]\nscope = \"layers.2*\"\nproducer = \"aten::gelu\"\naction = "
                 "\"recompute\"\n"));
  const auto after = [&](int i) {
    if (i < 3) return;
    EXPECT_EQ(session.report().repeated_calls, is_left_out(2, i) ? 0U : 1U) << i;
  };
  EXPECT_EQ(different_steps(session, kLayerWeights, 20, layers_without(is_left_out), after), 0);
  EXPECT_THAT(session.report().fallbacks, IsEmpty()) << session.report();
}

TEST(LayerDrop, KeepsThePlanOfABudget) {
  SessionOptions options = with_rules("");
  options.offload_window = options.prefetch_window = std::nullopt;
  options.budget = Budget::share(0.6);
  options.plan_in_background = false;
  Session session(std::move(options));
  // The planner times several steps before.
  const auto left_out = [](int layer, int i) { return i >= 12 && is_left_out(layer, i); };
  EXPECT_EQ(different_steps(session, kLayerWeights, 60, layers_without(left_out)), 0);
  const SessionReport report = session.report();
  EXPECT_THAT(report.fallbacks, Not(Contains(Key(kDiverged)))) << report;
  EXPECT_EQ(report.recorded_steps, 1U) << report;
}

TEST(LayerDrop, FindsTheWholeModelIfTheFirstStepLeftOutALayer) {
  Session session(recompute_everything());
  const auto left_out = [](int layer, int i) { return layer == i % 7; };
  EXPECT_EQ(different_steps(session, kLayerWeights, 40, layers_without(left_out)), 0);
  const SessionReport report = session.report();
  EXPECT_LE(report.recorded_steps, 4U) << report;
  EXPECT_LE(report.fallbacks.at(kDiverged), 8U) << report;
  EXPECT_EQ(session.profile()->chunks[0].layers, 4);
}

TEST(LayerDrop, RecordsAgainWhenALayerIsGoneForGood) {
  Session session(recompute_everything());
  const auto left_out = [](int layer, int i) { return layer == 1 && i >= 4; };
  std::size_t sites = 0;
  const auto after = [&](int i) {
    if (i == 0) sites = session.profile()->chunks[0].sites.size();
  };
  EXPECT_EQ(different_steps(session, kLayerWeights, 26, layers_without(left_out), after), 0);
  const SessionReport report = session.report();
  EXPECT_EQ(
      report.fallbacks.at("planned tensors were not saved for 16 steps: the next step records"), 1U)
      << report;
  EXPECT_EQ(report.recorded_steps, 2U);
  EXPECT_LT(session.profile()->chunks[0].sites.size(), sites);
}

TEST(PlanWithoutSignatures, GetsItsSignaturesFromTheFirstStepThatVerifiesIt) {
  Plan plan;
  const Program program = layers_without([](int, int) { return false; });
  {
    Session session(recompute_everything());
    EXPECT_EQ(different_steps(session, kLayerWeights, 3, program), 0);
    plan = *session.plan();
  }
  Plan old = plan;
  for (ChunkPlan& chunk : old.chunks) {
    ASSERT_FALSE(chunk.sites.signature.empty());
    chunk.sites.signature.clear();
  }
  SessionOptions options = with_rules("");
  options.plan = old;
  Session session(std::move(options));
  const auto after = [&](int i) {
    if (i > 0) return;
    EXPECT_EQ(*session.plan(), plan);  // Signatures are the same in every session.
  };
  EXPECT_EQ(different_steps(session, kLayerWeights, 20, layers_without(is_left_out), after), 0);
  EXPECT_THAT(session.report().fallbacks, IsEmpty()) << session.report();
  EXPECT_EQ(session.report().recorded_steps, 0U);
}

TEST(PlanWithoutSignatures, IsNotTrustedByABackwardAfterTheStepThatVerifiesIt) {
  const testing::Deterministic deterministic;
  at::Tensor weight = at::randn({kWidth, kWidth}).set_requires_grad(true);
  const auto loss = [&](bool written) {
    const at::Tensor y = weight.sin();
    if (written) write_unseen(y);
    return loss_of(y);
  };
  const auto gradient = [&](const at::Tensor& of) {
    of.backward();
    return std::exchange(weight.mutable_grad(), at::Tensor());
  };
  Session first(recompute_everything());
  first.register_fixed(weight, FixedReason::kParameter);
  for (int i = 0; i < 3; ++i) {
    const Step step = first.step();
    (void)gradient(loss(false));
  }
  SessionOptions options = with_rules("");
  options.plan = *first.plan();
  Session session(std::move(options));
  session.register_fixed(weight, FixedReason::kParameter);
  const at::Tensor wanted = gradient(loss(true));
  for (int i = 0; i < 5; ++i) {
    Step step = session.step();
    const at::Tensor late = loss(true);
    step.end();
    EXPECT_TRUE(gradient(late).equal(wanted)) << i << session.report();
  }
}

TEST(PlanWithoutSignatures, IsNotTrustedBeforeItIsVerified) {
  // Signatures and plan are of a program without the write.
  const auto program_with = [](bool written) {
    return [written](const at::Tensor&, const Weights& weights, int) {
      const at::Tensor y = weights[0].cos();
      if (written) write_unseen(y);
      return loss_of(y);
    };
  };
  for (const bool with_signatures : {false, true}) {
    Session first(recompute_everything());
    EXPECT_EQ(different_steps(first, 1, 3, program_with(false)), 0);
    SessionOptions options = with_rules("");
    options.plan = *first.plan();
    if (!with_signatures) options.plan->chunks[0].sites.signature.clear();
    Session session(std::move(options));
    EXPECT_EQ(different_steps(session, 1, 4, program_with(true)), 0);
    EXPECT_EQ(session.report().demoted.size(), 1U) << session.report();
  }
}

}  // namespace
}  // namespace spillway
