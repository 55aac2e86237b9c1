#include "spillway/torch/session.hpp"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "spillway/core/error.hpp"
#include "spillway/torch/scope.hpp"
#include "support/error_text.hpp"
#include "tiny_model.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::count_different;
using testing::error_text;
using ::testing::HasSubstr;
using testing::TinyModel;
using testing::TinyOptions;

SessionOptions offload_everything() {
  SessionOptions options;
  options.rules = parse_rules("[[rule]]\naction = \"offload\"\n", "test.toml");
  options.device = at::kCPU;
  options.small = 1_KiB;
  options.host = 64_MiB;
  options.in_flight = 64_KiB;
  options.ahead = 128_KiB;
  return options;
}

/// The losses and gradients of `steps` training steps.
struct Run {
  std::vector<at::Tensor> values;
};

/// `forward` computes and backpropagates one step's loss.
template <typename Forward>
Run train(TinyModel& model, Session* session, int steps, Forward&& forward) {
  Run run;
  for (int i = 0; i < steps; ++i) {
    model.zero_gradients();
    at::manual_seed(static_cast<std::uint64_t>(100 + i));
    {
      std::optional<Step> step;
      if (session != nullptr) step.emplace(session->step());
      run.values.push_back(forward(step ? &*step : nullptr, i).detach().clone());
    }
    for (at::Tensor& gradient : model.gradients()) run.values.push_back(std::move(gradient));
    model.update();
  }
  return run;
}

/// Trains one model without and one with a session; the number of values that differ in a bit.
template <typename Forward>
int difference(const TinyOptions& shape, Session& session, int steps, Forward&& forward) {
  const testing::Deterministic deterministic;
  TinyModel plain(shape);
  const Run without =
      train(plain, nullptr, steps, [&](Step* step, int i) { return forward(plain, step, i); });
  TinyModel managed(shape);
  session.register_model(managed);
  const Run with =
      train(managed, &session, steps, [&](Step* step, int i) { return forward(managed, step, i); });
  return count_different(without.values, with.values);
}

at::Tensor plain_step(TinyModel& model, Step* /*step*/, int i) {
  at::Tensor loss = model.loss(model.tokens(2, 32, i));
  loss.backward();
  return loss;
}

TEST(Session, GivesTheSameBitsFromTheFirstStepOn) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 5, plain_step), 0);
  const SessionReport report = session.report();
  EXPECT_EQ(report.steps, 5U);
  EXPECT_EQ(report.recorded_steps, 1U);
  EXPECT_GT(report.bytes_out, 500_KiB);
  EXPECT_GT(report.bytes_back, 100_KiB);
  EXPECT_LT(report.saved_peak_with, report.saved_peak_without);
  EXPECT_TRUE(report.fallbacks.empty()) << report;
}

TEST(Session, GivesTheSameBitsWithTiedWeightsInLowPrecision) {
  Session session(offload_everything());
  TinyOptions shape;
  shape.tied = true;
  shape.dtype = at::kBFloat16;
  EXPECT_EQ(difference(shape, session, 3, plain_step), 0);
}

TEST(Session, KeepsEverythingWithoutRules) {
  SessionOptions options = offload_everything();
  options.rules = {};
  Session session(std::move(options));
  EXPECT_EQ(difference({}, session, 3, plain_step), 0);
  EXPECT_EQ(session.report().bytes_out, 0_B);
  EXPECT_EQ(session.report().saved_peak_with, session.report().saved_peak_without);
}

TEST(Session, AccumulatesGradientsOverMicroBatches) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 3,
                       [](TinyModel& model, Step*, int i) {
                         at::Tensor total = at::zeros({});
                         for (int micro = 0; micro < 3; ++micro) {
                           at::Tensor loss = model.loss(model.tokens(1, 32, 10 * i + micro));
                           loss.backward();
                           total = total + loss.detach();
                         }
                         return total;
                       }),
            0);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
}

TEST(Session, KeepsSeveralPassesInFlight) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 4,
                       [](TinyModel& model, Step* step, int i) {
                         std::vector<at::Tensor> losses;
                         for (int micro = 0; micro < 3; ++micro) {
                           if (step != nullptr) step->pass(0, micro);
                           losses.push_back(model.loss(model.tokens(1, 32, 10 * i + micro)));
                         }
                         at::Tensor total = at::zeros({});
                         for (const at::Tensor& loss : losses) {
                           loss.backward();
                           total = total + loss.detach();
                         }
                         return total;
                       }),
            0);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
  // Only the very first buffer that the step's first backward wants could not be asked for ahead.
  EXPECT_LE(session.report().late_reloads, 1U) << session.report();
}

TEST(Session, GoesOnWhenSizesChange) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 6,
                       [](TinyModel& model, Step*, int i) {
                         at::Tensor loss = model.loss(model.tokens(1 + i % 3, 16 + 8 * i, i));
                         loss.backward();
                         return loss;
                       }),
            0);
  EXPECT_EQ(session.report().recorded_steps, 1U);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
}

TEST(Session, RecordsAnewWhenTheModelChanges) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 6,
                       [](TinyModel& model, Step*, int i) {
                         at::Tensor hidden = model.hidden(model.tokens(2, 32, i));
                         at::Tensor loss =
                             i < 3 ? hidden.sum() : (hidden.tanh() * hidden.sin().square()).mean();
                         loss.backward();
                         return loss;
                       }),
            0);
  EXPECT_EQ(session.report().recorded_steps, 2U);
  EXPECT_EQ(session.report().fallbacks.size(), 1U) << session.report();
}

TEST(Session, KeepsWhatAFullHostTierCannotTake) {
  SessionOptions options = offload_everything();
  options.rules =
      parse_rules("[[rule]]\naction = \"offload\"\n[limits]\nhost = \"128 KiB\"\n", "t");
  Session session(std::move(options));
  EXPECT_EQ(difference({}, session, 4, plain_step), 0);
  EXPECT_GT(session.report().fallbacks.at("the host tier is full"), 0U);
  EXPECT_LE(session.report().host_peak, 128_KiB);
}

TEST(Session, SurvivesAPassWithoutBackwardAndAnException) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 5,
                       [](TinyModel& model, Step* step, int i) {
                         if (step != nullptr && i % 2 == 1) {
                           step->pass(7, 0);
                           (void)model.loss(model.tokens(1, 24, 99));  // Evaluated, with gradients.
                           {
                             const at::NoGradGuard guard;
                             (void)model.loss(model.tokens(1, 24, 98));
                           }
                           try {
                             (void)model.loss(model.tokens(1, 24, 97));
                             throw std::runtime_error("half-way");
                           } catch (const std::runtime_error&) {
                           }
                           step->pass(0, 0);
                         }
                         at::manual_seed(static_cast<std::uint64_t>(i));
                         return plain_step(model, step, i);
                       }),
            0);
}

TEST(Session, LetsAGraphBeUsedTwiceAndOutliveIt) {
  const testing::Deterministic deterministic;
  const auto gradients_of = [](bool managed) {
    TinyModel model({});
    at::Tensor loss;
    {
      std::optional<Session> session;
      std::optional<Step> step;
      if (managed) {
        session.emplace(offload_everything());
        session->register_model(model);
        step.emplace(session->step());
      }
      at::manual_seed(5);
      loss = model.loss(model.tokens(2, 32, 1));
      loss.backward({}, /*retain_graph=*/true);
    }
    // The session is gone; its hooks are not.
    loss.backward();
    return model.gradients();
  };
  EXPECT_EQ(count_different(gradients_of(false), gradients_of(true)), 0);
}

TEST(Session, LeavesADoubleBackwardAlone) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 3,
                       [](TinyModel& model, Step*, int i) {
                         const at::Tensor x = model.parameters()[1];
                         const at::Tensor loss = (x.exp() * x).square().mean() + 0 * i;
                         const auto gradients = torch::autograd::grad({loss}, {x}, {}, true, true);
                         at::Tensor penalty = loss + gradients[0].square().sum();
                         penalty.backward();
                         return penalty;
                       }),
            0);
}

TEST(Session, ThrowsAutogradsOwnErrorForAChangeInPlace) {
  for (const bool offload : {true, false}) {
    SessionOptions options = offload_everything();
    if (!offload) options.rules = {};
    Session session(std::move(options));
    const at::Tensor weight = at::randn({64, 64}).set_requires_grad(true);
    for (int i = 0; i < 3; ++i) {
      const auto step = session.step();
      const at::Tensor x = at::randn({64, 64}) * weight;
      const at::Tensor y = x.exp();
      y.add_(1);
      EXPECT_THAT(error_text<c10::Error>([&] { y.sum().backward(); }),
                  HasSubstr("modified by an inplace operation"));
    }
  }
}

TEST(Session, LeavesTensorsItDoesNotKnowAlone) {
  Session session(offload_everything());
  const at::Tensor dense = at::randn({32, 32}).set_requires_grad(true);
  for (int i = 0; i < 3; ++i) {
    dense.mutable_grad() = at::Tensor();
    const auto step = session.step();
    const at::Tensor sparse = at::eye(32).to_sparse();
    const at::Tensor empty = at::zeros({0, 32}).set_requires_grad(true);
    const at::Tensor y = at::mm(sparse, dense);
    (y * y).sum().backward();
    (empty * empty).sum().backward();
    EXPECT_TRUE(at::equal(dense.grad(), 2 * dense));
  }
}

TEST(Session, DoesNotMoveWhatTheCallerHolds) {
  Session session(offload_everything());
  const at::Tensor weight = at::randn({64, 64}).set_requires_grad(true);
  const at::Tensor batch = at::randn({256, 64});
  session.register_fixed(weight, FixedReason::kParameter);
  for (int i = 0; i < 3; ++i) {
    const auto step = session.step();
    const at::Tensor returned = at::mm(batch, weight);
    returned.square().sum().backward();
  }
  EXPECT_EQ(session.report().bytes_out, 0_B) << session.report();
  int held = 0;
  for (const BufferProfile& buffer : session.profile()->chunks[0].buffers) {
    held += buffer.fixed == FixedReason::kHeldByCaller ? 1 : 0;
  }
  EXPECT_EQ(held, 2);  // The batch and what was returned.
}

TEST(Session, RefusesNestedStepsAndSaysWhy) {
  Session session(offload_everything());
  Session other(offload_everything());
  const auto step = session.step();
  EXPECT_EQ(error_text<InvalidArgument>([&] { (void)session.step(); }),
            "[step] this session's step has not ended; end it first");
  EXPECT_EQ(error_text<InvalidArgument>([&] { (void)other.step(); }),
            "[step] another session is within a step on this thread; end that one first, or use "
            "another thread");
  std::thread([&] {
    EXPECT_EQ(error_text<InvalidArgument>([&] { (void)session.step(); }),
              "[step] this session is within a step on another thread; use one session a thread");
    const auto here = other.step();  // Another session on another thread is fine.
  }).join();
}

TEST(Session, WorksOnSeveralThreadsAtOnce) {
  const auto work = [](int* different) {
    Session session(offload_everything());
    TinyOptions shape;
    shape.dropout = 0;  // The random numbers of the process are shared.
    TinyModel model(shape);
    session.register_model(model);
    const at::Tensor tokens = at::arange(64, at::kLong).view({2, 32});
    at::Tensor first;
    for (int i = 0; i < 6; ++i) {
      model.zero_gradients();
      const auto step = session.step();
      model.loss(tokens).backward();
      const at::Tensor gradient = model.gradients()[1];
      if (i == 0) first = gradient;
      *different += at::equal(first, gradient) ? 0 : 1;
    }
  };
  int one = 0;
  int two = 0;
  {
    const std::jthread a(work, &one);
    const std::jthread b(work, &two);
  }
  EXPECT_EQ(one + two, 0);
}

TEST(Session, RecordsScopesProducersAndTheOrderOfBackward) {
  Session session(offload_everything());
  TinyModel model({});
  session.register_model(model);
  for (int i = 0; i < 2; ++i) {
    const auto step = session.step();
    model.loss(model.tokens(2, 32, i)).backward();
  }
  const Profile& profile = *session.profile();
  EXPECT_EQ(profile.layers, 3);
  EXPECT_EQ(profile.layer_scope, "layers");
  ASSERT_EQ(profile.chunks.size(), 1U);
  const ChunkProfile& chunk = profile.chunks[0];
  EXPECT_GT(chunk.forward_ns, 0);
  EXPECT_GT(chunk.backward_ns, 0);
  bool gelu = false;
  for (const BufferProfile& buffer : chunk.buffers) {
    if (buffer.position.scope == "layers.1.mlp" && buffer.saves[0].saver == "aten::gelu") {
      gelu = true;
      EXPECT_EQ(buffer.layer, 1);
      EXPECT_THAT(buffer.producer.name, ::testing::StartsWith("aten::"));
      EXPECT_GE(buffer.first_unpack, 0);
    }
  }
  EXPECT_TRUE(gelu);
  EXPECT_FALSE(chunk.unpack_order.empty());
  // It is a value: through JSON and back, and it makes the same plan.
  const Profile again = profile_from_json(to_json(profile), "p.json");
  EXPECT_EQ(again, profile);
  EXPECT_EQ(make_plan(again, offload_everything().rules), *session.plan());
}

TEST(Session, CarriesOutRulesPerScope) {
  SessionOptions options = offload_everything();
  options.rules = parse_rules(
      "[[rule]]\nscope = \"layers.*.mlp\"\nlayers = \"0..1\"\naction = \"offload\"\n", "t");
  Session session(std::move(options));
  EXPECT_EQ(difference({}, session, 3, plain_step), 0);
  for (const Decision& decision : session.plan()->chunks[0].decisions) {
    const bool offloaded = decision.action.kind == ActionKind::kOffload;
    const bool expected =
        decision.position.scope == "layers.0.mlp" || decision.position.scope == "layers.1.mlp";
    EXPECT_TRUE(expected || !offloaded) << decision.position.scope;
  }
  EXPECT_GT(session.report().actions.at("offload").buffers, 2U);
}

TEST(Session, TakesAPlanMadeEarlier) {
  Plan plan;
  {
    Session session(offload_everything());
    EXPECT_EQ(difference({}, session, 2, plain_step), 0);
    plan = *session.plan();
  }
  SessionOptions options = offload_everything();
  options.rules = {};
  options.plan = plan_from_json(to_json(plan), "plan.json");
  Session session(std::move(options));
  EXPECT_EQ(difference({}, session, 3, plain_step), 0);
  EXPECT_EQ(*session.plan(), plan);
  EXPECT_GT(session.report().bytes_out, 100_KiB);
}

TEST(Session, DoesNotGrowOverManySteps) {
  Session session(offload_everything());
  TinyOptions shape;
  shape.layers = 1;
  TinyModel model(shape);
  session.register_model(model);
  Bytes host;
  for (int i = 0; i < 300; ++i) {
    model.zero_gradients();
    const auto step = session.step();
    model.loss(model.tokens(1, 32, i)).backward();
    if (i == 20) host = session.report().host_peak;
  }
  EXPECT_EQ(session.report().host_peak, host);
  EXPECT_TRUE(session.report().fallbacks.empty());
}

TEST(Scope, NestsAndCostsNothingWhenNobodyRecords) {
  const Scope outside("layers.0");
  EXPECT_EQ(Scope::current(), "");
  Session session(offload_everything());
  {
    const auto step = session.step();
    const Scope layer("layers.3");
    const Scope part("mlp");
    EXPECT_EQ(Scope::current(), "layers.3.mlp");
  }
  EXPECT_EQ(Scope::current(), "");
}

}  // namespace
}  // namespace spillway
