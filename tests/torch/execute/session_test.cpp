#include "spillway/torch/session.hpp"

#include <deque>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "spillway/plan/simulate.hpp"
#include "spillway/torch/scope.hpp"
#include "support/error_text.hpp"
#include "torch/support/training.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::difference;
using testing::error_text;
using ::testing::HasSubstr;
using testing::offload_everything;
using testing::single_step;
using ::testing::StartsWith;
using testing::TinyModel;
using testing::TinyOptions;

TEST(Session, GivesTheSameBitsFromTheFirstStepOn) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 5, single_step), 0);
  const SessionReport report = session.report();
  EXPECT_EQ(report.steps, 5U);
  EXPECT_EQ(report.recorded_steps, 1U);
  EXPECT_GT(report.bytes_out, 500_KiB);
  EXPECT_GT(report.bytes_back, 100_KiB);
  EXPECT_LT(report.saved_peak_with, report.saved_peak_without);
  EXPECT_TRUE(report.fallbacks.empty()) << report;
}

TEST(Session, KeepsEverythingWithoutRules) {
  SessionOptions options = offload_everything();
  options.rules = {};
  Session session(std::move(options));
  EXPECT_EQ(difference({}, session, 3, single_step), 0);
  EXPECT_EQ(session.report().bytes_out, 0_B);
  EXPECT_EQ(session.report().saved_peak_with, session.report().saved_peak_without);
}

TEST(Session, AccumulatesGradientsOverMicroBatches) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 3,
                       [](TinyModel& model, Step*, int i) {
                         return testing::accumulated_step(model, i, 3);
                       }),
            0);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
}

TEST(Session, KeepsSeveralPassesInFlight) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 4,
                       [](TinyModel& model, Step* step, int i) {
                         return testing::gpipe_step(model, step, i, 3);
                       }),
            0);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
  // Only the first buffer that the step's first backward reads could not be prefetched.
  EXPECT_LE(session.report().late_reloads, 1U) << session.report();
}

TEST(Session, ThrowsForNestedSteps) {
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
  Plan plan = make_plan(again, offload_everything().rules);
  const SessionOptions options = offload_everything();
  plan.limits.offload_window = options.offload_window;
  plan.limits.prefetch_window = options.prefetch_window;
  set_windows(again, plan);
  EXPECT_EQ(plan, *session.plan());
}

TEST(Session, AppliesRulesPerScope) {
  SessionOptions options = offload_everything();
  options.rules = parse_rules(
      "[[rule]]\nscope = \"layers.*.mlp\"\nlayers = \"0..1\"\naction = \"offload\"\n", "t");
  Session session(std::move(options));
  EXPECT_EQ(difference({}, session, 3, single_step), 0);
  for (const Decision& decision : session.plan()->chunks[0].decisions) {
    const bool offloaded = decision.action.kind == ActionKind::kOffload;
    const bool expected =
        decision.position.scope == "layers.0.mlp" || decision.position.scope == "layers.1.mlp";
    EXPECT_TRUE(expected || !offloaded) << decision.position.scope;
  }
  EXPECT_GT(session.report().actions.at("offload").buffers, 2U);
}

TEST(Session, ExecutesAPlanMadeEarlier) {
  Plan plan;
  {
    Session session(offload_everything());
    EXPECT_EQ(difference({}, session, 2, single_step), 0);
    plan = *session.plan();
  }
  SessionOptions options = offload_everything();
  options.rules = {};
  options.plan = plan_from_json(to_json(plan), "plan.json");
  Session session(std::move(options));
  EXPECT_EQ(difference({}, session, 3, single_step), 0);
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

TEST(Session, ReportsWhatLivingGraphsHold) {
  Session session(offload_everything());
  TinyModel model({});
  session.register_model(model);
  at::Tensor loss;
  for (int i = 0; i < 2; ++i) {
    const auto step = session.step();
    loss = model.loss(model.tokens(1, 32, i));
    loss.backward({}, /*retain_graph=*/true);
  }
  EXPECT_GT(session.report().device_now, 0_B) << session.report();
  EXPECT_GT(session.report().host_now, 0_B) << session.report();
  loss.reset();
  EXPECT_EQ(session.report().device_now, 0_B) << session.report();
  EXPECT_EQ(session.report().host_now, 0_B) << session.report();
}

TEST(Scope, NestsAndIsEmptyWhileNoSessionRecords) {
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

TEST(Session, SkipsOffloadsThatBackwardReadsAtOnce) {
  Session session(offload_everything());
  TinyModel model({});
  session.register_model(model);
  std::vector<SessionReport> reports;
  for (int i = 0; i < 4; ++i) {
    const auto step = session.step();
    model.loss(model.tokens(2, 32, i)).backward();
    reports.push_back(session.report());
  }
  reports.push_back(session.report());
  // From the first step that executes the plan on.
  const SessionReport& first = reports[2];
  const SessionReport& last = reports[4];
  EXPECT_GT(first.offloads_skipped.bytes, 0_B) << first;
  EXPECT_LE(first.offloads_skipped.bytes, 64_KiB) << first;
  EXPECT_EQ(first.used_in_place, 0U) << first;
  EXPECT_EQ(first.bytes_out + first.offloads_skipped.bytes, first.saved_peak_without) << first;
  EXPECT_EQ(last.offloads_skipped.bytes, first.offloads_skipped.bytes) << last;
  EXPECT_EQ(last.bytes_out, first.bytes_out) << last;
  EXPECT_EQ(last.bytes_back, first.bytes_back) << last;
  EXPECT_EQ(last.saved_peak_with, first.saved_peak_with) << last;
}

TEST(Session, OffloadsSkippedBuffersIfAnotherForwardComesFirst) {
  SessionOptions options = offload_everything();
  options.small = 4_KiB;  // So that nothing is small in one step and not in another.
  Session session(std::move(options));
  EXPECT_EQ(difference({}, session, 9,
                       [](TinyModel& model, Step* step, int i) {
                         if (step != nullptr) step->pass(0, 0);
                         at::Tensor loss = model.loss(model.tokens(1 + i / 4 % 2, 32, i));
                         at::Tensor other;
                         if (i == 3 || i > 6) {
                           if (step != nullptr) step->pass(0, 1);
                           other = model.loss(model.tokens(1, 32, 50 + i));
                         }
                         loss.backward();
                         if (other.defined()) other.backward();
                         return loss;
                       }),
            0);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
}

/// Lists are positions: with other sizes the same buffers are skipped.
TEST(Session, SkipsTheSameOffloadsWhateverTheSizes) {
  // All of a pass changes its size, or only what is saved last.
  for (const bool all : {true, false}) {
    SessionOptions options = offload_everything();
    options.small = 4_KiB;
    Session session(std::move(options));
    TinyModel model({});
    session.register_model(model);
    std::uint64_t skipped = 0;
    for (int i = 0; i < 12; ++i) {
      const int times = 1 + (i / 2) % 3;
      at::Tensor loss;
      {
        const auto step = session.step();
        {
          const at::Tensor hidden = model.hidden(model.tokens(all ? times : 1, 32, i));
          const at::Tensor tail = all ? hidden : hidden.repeat({times, 1, 1});
          loss = (tail.tanh() * tail.sigmoid()).square().mean();
        }
        loss.backward();
      }
      if (i == 0) continue;
      const SessionReport report = session.report();
      EXPECT_EQ(report.bytes_out + report.offloads_skipped.bytes, report.saved_peak_without)
          << report;
      EXPECT_LT(report.saved_peak_with, report.saved_peak_without) << report;
      if (i == 1) skipped = report.offloads_skipped.buffers;
      EXPECT_EQ(report.offloads_skipped.buffers, skipped) << report;
    }
    EXPECT_GT(skipped, 0U);
    EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
  }
}

TEST(Session, ReportsHowLongItWaitedForCopies) {
  for (const int every : {32, 0}) {
    SessionOptions options = offload_everything();
    options.time_waits_every = every;
    Session session(std::move(options));
    EXPECT_EQ(difference({}, session, 4, single_step), 0);
    const SessionReport report = session.report();
    // The first step records; of the others the first two are timed.
    EXPECT_EQ(report.waits.step, every == 0 ? 0U : 3U);
    EXPECT_EQ(report.waits.release > Nanoseconds(0), every != 0);
    EXPECT_EQ(report.waits.reload > Nanoseconds(0), every != 0);
    EXPECT_EQ(report.to_text().find("waited for copies") != std::string::npos, every != 0);
    EXPECT_THAT(report.to_json(),
                HasSubstr("\"release_ns\": " + std::to_string(report.waits.release.count())));
  }
}

TEST(Session, ReturnsWhetherTheNextStepRecords) {
  Session session(offload_everything());
  TinyModel model({});
  session.register_model(model);
  std::vector<bool> records;
  for (int i = 0; i < 5; ++i) {
    if (i == 3) session.record_next_step();
    records.push_back(session.next_step_records());
    const auto step = session.step();
    EXPECT_EQ(Scope::wanted(), records.back());
    model.loss(model.tokens(2, 32, i)).backward();
  }
  EXPECT_EQ(records, (std::vector<bool>{true, false, false, true, false}));
  EXPECT_EQ(session.report().recorded_steps, 2U);
}

TEST(Session, KeepsEmptyTensorsWhereNoneIsTooSmall) {
  SessionOptions options = offload_everything();
  options.small = Bytes(0);
  Session session(std::move(options));
  for (const std::int64_t rows : {0, 4, 0}) {
    const at::Tensor x = at::ones({rows, 64}).set_requires_grad(true);
    const auto step = session.step();
    x.exp().sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), at::ones({rows, 64}).exp()));
  }
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
}

TEST(Session, UsesTheGivenListOfLayers) {
  const auto layers_of = [](const std::string& wanted) {
    SessionOptions options = offload_everything();
    options.layers = wanted;
    Session session(std::move(options));
    const at::Tensor weight = at::randn({64, 64}).set_requires_grad(true);
    {
      const auto step = session.step();
      at::Tensor x = at::mm(at::randn({64, 64}), weight);
      for (int layer = 0; layer < 2; ++layer) {
        const Scope outer("decoder." + std::to_string(layer));
        for (int expert = 0; expert < 3; ++expert) {
          const Scope inner("experts." + std::to_string(expert));
          x = at::tanh(at::mm(x, weight));
        }
      }
      for (int block = 0; block < 4; ++block) {
        const Scope scope("blocks." + std::to_string(block));
        x = at::tanh(x);
      }
      x.sum().backward();
    }
    return std::pair(session.profile()->layer_scope, session.profile()->layers);
  };
  EXPECT_EQ(layers_of(""), std::pair(std::string("blocks"), 4));  // The longest list.
  EXPECT_EQ(layers_of("decoder"), std::pair(std::string("decoder"), 2));
  EXPECT_EQ(layers_of("no.such.list"), std::pair(std::string(), 0));
}

/// Calls of a program that is not C++: the innermost one is the last.
class Calls final : public ScopeSource {
 public:
  [[nodiscard]] Position position() noexcept override {
    ++asked;
    return calls.empty() ? Position() : Position{&calls.back(), calls.back()};
  }

  std::deque<std::string> calls;
  int asked = 0;
};

TEST(Scope, IsTheInnermostCallOfTheSourceAndWhatWasEnteredWithinIt) {
  SessionOptions options = offload_everything();
  const auto source = std::make_shared<Calls>();
  options.scope_source = source;
  Session session(std::move(options));
  const auto step = session.step();
  EXPECT_EQ(Scope::current(), "");
  const Scope outside("epoch");
  EXPECT_EQ(Scope::current(), "epoch");
  source->calls = {"layers.7"};
  EXPECT_EQ(Scope::current(), "layers.7");
  {
    const Scope rotary("rotary");
    const Scope part("sin");
    EXPECT_EQ(Scope::current(), "layers.7.rotary.sin");
    source->calls.emplace_back("layers.7.mlp");
    EXPECT_EQ(Scope::current(), "layers.7.mlp");
    source->calls.pop_back();
    EXPECT_EQ(Scope::current(), "layers.7.rotary.sin");
  }
  EXPECT_EQ(Scope::current(), "layers.7");
  source->calls.clear();
  EXPECT_EQ(Scope::current(), "epoch");
}

TEST(Scope, AsksItsSourceOnlyInRecordingAndTracedSteps) {
  SessionOptions options = offload_everything();
  const auto source = std::make_shared<Calls>();
  source->calls = {"layers.0.mlp"};
  options.scope_source = source;
  Session session(std::move(options));
  TinyModel model({});
  session.register_model(model);
  std::vector<bool> asked;
  for (int i = 0; i < 4; ++i) {
    if (i == 3) session.trace_next_step();
    source->asked = 0;
    {
      const auto step = session.step();
      model.loss(model.tokens(2, 32, i)).backward();
    }
    asked.push_back(source->asked > 0);
  }
  EXPECT_EQ(asked, (std::vector<bool>{true, false, false, true}));
  EXPECT_THAT(session.profile()->chunks.front().buffers.front().position.scope,
              StartsWith("layers.0.mlp"));
}

TEST(Scope, AsksItsSourceWhileTheSessionIsNotLocked) {
  /// Uses the session, as an interpreter may when it collects garbage.
  class Reports final : public ScopeSource {
   public:
    [[nodiscard]] Position position() noexcept override {
      if (session != nullptr) steps += static_cast<int>(session->report().steps) + 1;
      return {};
    }

    Session* session = nullptr;
    int steps = 0;
  };
  SessionOptions options = offload_everything();
  const auto source = std::make_shared<Reports>();
  options.scope_source = source;
  Session session(std::move(options));
  source->session = &session;
  TinyModel model({});
  session.register_model(model);
  const auto step = session.step();
  model.loss(model.tokens(2, 32, 0)).backward();
  EXPECT_GT(source->steps, 0);
}

TEST(Scope, MayBeLeftInAnyOrder) {
  Session session(offload_everything());
  std::uint64_t late = 0;
  {
    const auto step = session.step();
    const std::uint64_t outer = Scope::enter("outer");
    const std::uint64_t inner = Scope::enter("inner");
    Scope::leave(outer);
    EXPECT_EQ(Scope::current(), "outer.inner");
    Scope::leave(inner);
    EXPECT_EQ(Scope::current(), "");
    late = Scope::enter("late");
  }
  EXPECT_EQ(Scope::enter("between steps"), 0U);
  session.record_next_step();
  const auto step = session.step();
  EXPECT_EQ(Scope::current(), "");
  const Scope scope("scope");
  Scope::leave(late);
  EXPECT_EQ(Scope::current(), "scope");
}

}  // namespace
}  // namespace spillway
