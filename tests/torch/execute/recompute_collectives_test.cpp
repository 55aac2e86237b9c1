// Which collectives a rank repeats. All ranks must repeat the same ones, or they wait for each
// other, or add up what does not belong together; so nothing that differs between them may decide.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/op_registration/op_registration.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "spillway/torch/session.hpp"
#include "torch/support/training.hpp"
#include "torch/support/weight_program.hpp"

namespace spillway {
namespace {

using testing::difference_of;
using testing::with_rules;

/// When something else than the program holds the results: a thread of the backend, say.
enum class Held { kNever, kInTheFirstStep, kInLaterSteps };

/// How often the collective has run.
int sums = 0;
Held held_when = Held::kNever;
std::vector<at::Tensor> held;

at::Tensor sum_over_ranks(const at::Tensor& x) {
  const at::AutoDispatchBelowAutograd below;
  ++sums;
  return x * 2;
}

class Sum : public torch::autograd::Function<Sum> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x) {
    static const auto kRegistration =
        c10::RegisterOperators().op("spillway_group::test_sum(Tensor x) -> Tensor", sum_over_ranks);
    return c10::Dispatcher::singleton()
        .findSchemaOrThrow("spillway_group::test_sum", "")
        .typed<at::Tensor(const at::Tensor&)>()
        .call(x);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* /*context*/,
                                               const torch::autograd::tensor_list& gradients) {
    return {gradients[0] * 2};
  }
};

at::Tensor two_layers(const at::Tensor& weight, int step) {
  held.clear();
  at::Tensor x = at::randn({64, 64});
  for (int layer = 0; layer < 2; ++layer) {
    const at::Tensor y = Sum::apply(at::mm(x, weight));
    if (held_when == (step == 0 ? Held::kInTheFirstStep : Held::kInLaterSteps)) {
      held.push_back(y.detach());
    }
    x = y * y;
  }
  return x.sum();
}

struct Outcome {
  int different = 0;
  int collectives = 0;
  std::vector<ActionKind> actions;
  std::uint64_t repeated_calls = 0;
};

Outcome outcome_of(Held when, const char* rules) {
  held_when = when;
  sums = 0;
  Session session(with_rules(rules));
  Outcome outcome;
  outcome.different = difference_of(two_layers, session);
  held.clear();
  outcome.collectives = sums;
  for (const Decision& decision : session.plan()->chunks[0].decisions) {
    outcome.actions.push_back(decision.action.kind);
  }
  const SessionReport report = session.report();
  outcome.repeated_calls = report.repeated_calls;
  EXPECT_TRUE(report.fallbacks.empty()) << report;
  return outcome;
}

constexpr const char* kRepeated =
    "[[rule]]\nproducer = \"spillway_group::*\"\naction = \"recompute\"\n"
    "[limits]\nrecompute_collectives = true\n";

TEST(RecomputeCollectives, AreTheSameWhoeverHoldsTheirResults) {
  const Outcome expected = outcome_of(Held::kNever, kRepeated);
  EXPECT_EQ(expected.different, 0);
  EXPECT_GT(expected.collectives, 16);
  EXPECT_GT(expected.repeated_calls, 0U);
  for (const Held when : {Held::kInTheFirstStep, Held::kInLaterSteps}) {
    SCOPED_TRACE(static_cast<int>(when));
    const Outcome outcome = outcome_of(when, kRepeated);
    EXPECT_EQ(outcome.different, 0);
    EXPECT_EQ(outcome.actions, expected.actions);
    EXPECT_EQ(outcome.collectives, expected.collectives);
    EXPECT_EQ(outcome.repeated_calls, expected.repeated_calls);
  }
}

TEST(RecomputeCollectives, PlanTheSameForResultsWhoeverHoldsThem) {
  constexpr const char* kOffloaded = "[[rule]]\naction = \"offload\"\n";
  const Outcome expected = outcome_of(Held::kNever, kOffloaded);
  const Outcome outcome = outcome_of(Held::kInTheFirstStep, kOffloaded);
  EXPECT_EQ(outcome.different, 0);
  EXPECT_EQ(outcome.actions, expected.actions);
}

}  // namespace
}  // namespace spillway
