#include <cstring>

#include <ATen/autocast_mode.h>
#include <ATen/core/op_registration/op_registration.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/graph_task.h>

#include "spillway/core/error.hpp"
#include "spillway/torch/scope.hpp"
#include "spillway/torch/session.hpp"
#include "support/error_text.hpp"
#include "torch/support/training.hpp"
#include "torch/support/weight_program.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::difference;
using testing::difference_of;
using testing::error_text;
using ::testing::HasSubstr;
using testing::recompute_everything;
using testing::single_step;
using testing::TinyModel;
using testing::TinyOptions;
using testing::with_rules;

TEST(Recompute, GivesTheSameBitsFromTheFirstStepOn) {
  Session session(recompute_everything());
  EXPECT_EQ(difference({}, session, 5, single_step), 0);
  const SessionReport report = session.report();
  EXPECT_GT(report.repeated_calls, 10U) << report;
  EXPECT_GT(report.bytes_recomputed, 100_KiB) << report;
  EXPECT_TRUE(report.fallbacks.empty()) << report;
  EXPECT_TRUE(report.demoted.empty()) << report;
}

constexpr const char* kLayers = "[internevo]\ncheckpoint = true\n";
constexpr const char* kMixed =
    "[[rule]]\nlayers = \"0\"\naction = \"offload\"\n"
    "[[rule]]\nproducer = [\"*norm*\", \"*gelu*\", \"*dropout*\", \"aten::mul*\", \"aten::div*\"]\n"
    "action = \"recompute\"\n"
    "[[rule]]\nproducer = \"*attention*\"\naction = \"offload\"\n";

TEST(Recompute, NeedsLessMemoryLayerByLayer) {
  Session session(with_rules(kLayers));
  EXPECT_EQ(difference({}, session, 4, single_step), 0);
  const SessionReport report = session.report();
  EXPECT_LT(report.saved_peak_with.count(), report.saved_peak_without.count() * 6 / 10) << report;
  EXPECT_TRUE(report.fallbacks.empty()) << report;
}

TEST(Recompute, MixesWithKeepAndOffload) {
  Session session(with_rules(kMixed));
  EXPECT_EQ(difference({}, session, 4, single_step), 0);
  const SessionReport report = session.report();
  EXPECT_GT(report.actions.at("recompute").buffers, 3U) << report;
  EXPECT_GT(report.actions.at("offload").buffers, 3U) << report;
  EXPECT_GT(report.repeated_calls, 0U) << report;
  EXPECT_TRUE(report.fallbacks.empty()) << report;
}

TEST(Recompute, RepeatsEachOperatorAtMostOnceInAPass) {
  Session session(recompute_everything());
  EXPECT_EQ(difference({}, session, 3, single_step), 0);
  std::size_t made = 0;
  for (const OperatorProfile& call : session.profile()->chunks[0].operators) {
    made += call.makes.empty() ? 0 : 1;
  }
  EXPECT_LE(session.report().repeated_calls, made);
}

TEST(Recompute, AccumulatesGradientsOverMicroBatches) {
  for (const char* const rules : {kLayers, kMixed}) {
    Session session(with_rules(rules));
    EXPECT_EQ(difference({}, session, 4,
                         [](TinyModel& model, Step*, int i) {
                           return testing::accumulated_step(model, i, 3);
                         }),
              0);
    EXPECT_GT(session.report().repeated_calls, 0U);
    EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
  }
}

TEST(Recompute, KeepsSeveralPassesInFlight) {
  for (const char* const rules : {kLayers, kMixed}) {
    Session session(with_rules(rules));
    EXPECT_EQ(difference({}, session, 4,
                         [](TinyModel& model, Step* step, int i) {
                           return testing::gpipe_step(model, step, i, 3);
                         }),
              0);
    EXPECT_GT(session.report().repeated_calls, 0U);
    EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
  }
}

TEST(Recompute, WorksWhenSizesChange) {
  Session session(with_rules(kLayers));
  EXPECT_EQ(difference({}, session, 6,
                       [](TinyModel& model, Step*, int i) {
                         at::Tensor loss = model.loss(model.tokens(1 + i % 3, 16 + 8 * i, i));
                         loss.backward();
                         return loss;
                       }),
            0);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
}

/// Mixed precision with its cache of cast weights, over micro-batches within one context.
class Autocast {
 public:
  Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_cache_enabled(true);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
};

TEST(Recompute, GivesTheSameBitsUnderAutocast) {
  for (const char* const rules : {kLayers, kMixed, "[[rule]]\naction = \"recompute\"\n"}) {
    Session session(with_rules(rules));
    TinyOptions shape;
    shape.tied = true;
    EXPECT_EQ(difference(shape, session, 4,
                         [](TinyModel& model, Step*, int i) {
                           at::Tensor total = at::zeros({});
                           for (int micro = 0; micro < 2; ++micro) {
                             at::Tensor loss;
                             {
                               const Autocast autocast;
                               loss = model.loss(model.tokens(1, 32, 10 * i + micro));
                             }
                             loss.backward();
                             total = total + loss.detach();
                           }
                           return total;
                         }),
              0);
    EXPECT_GT(session.report().repeated_calls, 0U);
    EXPECT_TRUE(session.report().demoted.empty()) << session.report();
  }
}

TEST(Recompute, FollowsWritesThroughATensorWithAVersionOfItsOwn) {
  // As x.data of Python. The writes begin after verification, which cannot detect them any more.
  Session session(recompute_everything());
  EXPECT_EQ(difference_of(
                [](const at::Tensor& weight, int i) {
                  const at::Tensor x = weight * 2;
                  if (i >= 3) x.variable_data().add_(1);
                  at::Tensor y = weight + 1;
                  y.mul_(3);
                  if (i >= 4) y.variable_data().sin_();
                  const at::Tensor copy = y.variable_data().cos();  // Its version is the first.
                  return x.sin().sum() + (x * x).sum() + (y * y).sum() + (copy * weight).sum();
                },
                session, 6),
            0);
  EXPECT_GT(session.report().repeated_calls, 0U);
  EXPECT_TRUE(session.report().demoted.empty()) << session.report();
}

TEST(Recompute, FollowsAScalarThatChangesEveryStep) {
  Session session(recompute_everything());
  EXPECT_EQ(difference_of(
                [](const at::Tensor& weight, int i) {
                  const at::Tensor x = weight * (1.5 + i);
                  return (x * x).sum();
                },
                session),
            0);
  EXPECT_GT(session.report().repeated_calls, 0U);
  EXPECT_TRUE(session.report().demoted.empty()) << session.report();
}

TEST(Recompute, FollowsChangesInPlace) {
  Session session(recompute_everything());
  EXPECT_EQ(difference_of(
                [](const at::Tensor& weight, int i) {
                  at::Tensor x = (weight * 3).sin();
                  const at::Tensor y = x * x.detach();  // Saves both.
                  at::Tensor z = y * 2;
                  z = z.relu_();
                  at::Tensor u = weight + 1;
                  u.mul_(2).add_(i);
                  u.slice(0, 0, 10).fill_(4);
                  std::vector<at::Tensor> list{u, y};
                  const at::Tensor w = at::cat(list);
                  return (w * w).sum() + (z * z).sum() + (u * u).sum();
                },
                session),
            0);
  EXPECT_GT(session.report().repeated_calls, 0U);
  EXPECT_TRUE(session.report().demoted.empty()) << session.report();
}

TEST(Recompute, StartsFromTheValueBeforeItWasOverwritten) {
  Session session(with_rules("[[rule]]\nproducer = \"aten::sin\"\naction = \"recompute\"\n"));
  EXPECT_EQ(difference_of(
                [](const at::Tensor& weight, int) {
                  const at::Tensor base = at::ones({64, 64}) * 3;
                  const at::Tensor s = base.sin();  // Made from what base is now.
                  const at::Tensor y = weight * s;
                  base.add_(1);
                  return y.sum() + (weight * base).sum();
                },
                session),
            0);
  EXPECT_GT(session.report().repeated_calls, 0U) << session.report();
  EXPECT_TRUE(session.report().demoted.empty()) << session.report();
}

TEST(Recompute, ThrowsIfAWeightChangedBeforeBackward) {
  Session session(with_rules("[[rule]]\nproducer = \"aten::add\"\naction = \"recompute\"\n"));
  at::Tensor weight = at::randn({64, 64}).set_requires_grad(true);
  session.register_fixed(weight, FixedReason::kParameter);
  for (int i = 0; i < 4; ++i) {
    auto step = session.step();
    const auto square = [](const at::Tensor& x) { return (x * x).sum(); };
    const at::Tensor loss = square(weight + 1);
    if (i < 3) {
      loss.backward();
      continue;
    }
    step.end();
    {
      const at::NoGradGuard guard;
      weight.add_(1);
    }
    EXPECT_THAT(error_text<c10::Error>([&] { loss.backward(); }),
                HasSubstr("modified by an inplace operation"));
  }
}

TEST(Recompute, RemembersAWeightThatChangesWithinTheStep) {
  Session session(with_rules("[[rule]]\nproducer = \"aten::add\"\naction = \"recompute\"\n"));
  EXPECT_EQ(difference_of(
                [](const at::Tensor& weight, int i) {
                  at::Tensor x = weight + 1;
                  at::Tensor loss = (x * x).sum();
                  const at::NoGradGuard guard;
                  if (i == 3) at::Tensor(weight).mul_(1.25);
                  return loss;
                },
                session),
            0);
  EXPECT_GT(session.report().repeated_calls, 0U);
}

TEST(Recompute, FollowsAChainOfTwoThousandOperators) {
  Session session(with_rules("[[rule]]\nproducer = \"aten::sin\"\naction = \"recompute\"\n"));
  EXPECT_EQ(difference_of(
                [](const at::Tensor& weight, int) {
                  at::Tensor x = weight;
                  for (int i = 0; i < 2000; ++i) x = x.sin();
                  return x.sum();
                },
                session, 3),
            0);
  EXPECT_GT(session.report().repeated_calls, 1900U) << session.report();
  EXPECT_LE(session.report().repeated_calls, 2000U) << session.report();
}

TEST(Recompute, LimitsWhatItCachesForLaterReplays) {
  SessionOptions options = recompute_everything();
  options.recompute_cache = 1_B;
  Session session(std::move(options));
  EXPECT_EQ(difference({}, session, 4, single_step), 0);
}

TEST(Recompute, CanBeVerifiedAgainAtAnyTime) {
  Session session(with_rules(kLayers));
  EXPECT_EQ(difference({}, session, 5,
                       [&](TinyModel& model, Step* step, int i) {
                         if (i == 3) session.verify_next_step();
                         return single_step(model, step, i);
                       }),
            0);
  EXPECT_TRUE(session.report().demoted.empty()) << session.report();
}

TEST(Recompute, FindsItsAnchorsInAPassWithMoreCallsThanProfiled) {
  Session session(
      with_rules("[[rule]]\nlayers = \"1\"\nproducer = \"aten::exp\"\naction = \"recompute\"\n"));
  EXPECT_EQ(difference_of(
                [](const at::Tensor& weight, int i) {
                  at::Tensor stream;
                  {
                    const Scope layer("layers.0");
                    const at::Tensor x = weight.sin();
                    // Tables made in some steps only; the second one by the anchor's operator.
                    if (i % 2 == 1) at::ones({64}).cos();
                    if (i % 3 == 1) weight.detach().add(1);
                    stream = x.add(1);
                  }
                  const Scope layer("layers.1");
                  const at::Tensor y = stream.exp();
                  return (y * y).sum();
                },
                session, 7),
            0);
  const SessionReport report = session.report();
  ASSERT_EQ(session.plan()->chunks[0].anchors.size(), 1U) << report;
  EXPECT_EQ(session.plan()->chunks[0].anchors[0].name, "aten::add");
  EXPECT_TRUE(report.fallbacks.empty()) << report;
  EXPECT_EQ(report.recorded_steps, 1U) << report;
  EXPECT_EQ(report.repeated_calls, 1U) << report;
  EXPECT_EQ(report.saved_peak_without, Bytes(64 * 64 * 4))
      << "anchors are no part of it: " << report;
}

TEST(Recompute, OffloadsNothingOfAnAnchorWithoutElements) {
  Session session(
      with_rules("[[rule]]\nlayers = \"1\"\nproducer = \"aten::exp\"\naction = \"recompute\"\n"
                 "[[rule]]\nproducer = \"aten::add\"\naction = \"offload\"\n"));
  EXPECT_EQ(difference_of(
                [](const at::Tensor& weight, int i) {
                  at::Tensor stream;
                  {
                    const Scope layer("layers.0");
                    stream = weight.narrow(0, 0, i < 3 ? 64 : 0).sin().add(1);
                  }
                  const Scope layer("layers.1");
                  const at::Tensor y = stream.exp();
                  return (y * y).sum();
                },
                session, 6),
            0);
  const SessionReport report = session.report();
  ASSERT_EQ(session.plan()->chunks[0].anchors.size(), 1U) << report;
  EXPECT_EQ(session.plan()->chunks[0].anchors[0].action.kind, ActionKind::kOffload) << report;
  EXPECT_TRUE(report.fallbacks.empty()) << report;
}

TEST(Recompute, LetsAGraphBeUsedTwiceAndOutliveTheSession) {
  const testing::Deterministic deterministic;
  const auto gradients_of = [](bool managed) {
    TinyModel model({});
    at::Tensor loss;
    {
      std::optional<Session> session;
      if (managed) {
        session.emplace(with_rules(kLayers));
        session->register_model(model);
      }
      for (int i = 0; i < 4; ++i) {
        model.zero_gradients();
        std::optional<Step> step;
        if (managed) step.emplace(session->step());
        at::manual_seed(5);
        loss = model.loss(model.tokens(2, 32, 1));
        loss.backward({}, /*retain_graph=*/true);
      }
    }
    loss.backward();
    return model.gradients();
  };
  EXPECT_EQ(testing::count_different(gradients_of(false), gradients_of(true)), 0);
}

TEST(Recompute, RepeatsOperatorsOfAnyLibrary) {
  static const auto kRegistration =
      c10::RegisterOperators().op("spillway_test::twice(Tensor x) -> Tensor",
                                  [](const at::Tensor& x) { return x.detach() * 2; });
  Session session(
      with_rules("[[rule]]\nproducer = \"spillway_test::*\"\naction = \"recompute\"\n"
                 "[[rule]]\nproducer = \"aten::mul\"\naction = \"recompute\"\n"));
  EXPECT_EQ(difference_of(
                [](const at::Tensor& weight, int) {
                  const at::Tensor x = c10::Dispatcher::singleton()
                                           .findSchemaOrThrow("spillway_test::twice", "")
                                           .typed<at::Tensor(const at::Tensor&)>()
                                           .call(weight.detach());
                  return (x * weight).sum();
                },
                session),
            0);
  EXPECT_GT(session.report().repeated_calls, 0U) << session.report();
}

}  // namespace
}  // namespace spillway
