// Traced steps: events of their streams compared with the predicted ones.
#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "spillway/torch/host_memory.hpp"
#include "spillway/torch/scope.hpp"
#include "spillway/torch/session.hpp"
#include "spillway/trace/names.hpp"
#include "support/error_text.hpp"
#include "torch/support/training.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::error_text;
using ::testing::HasSubstr;
using testing::TinyModel;

constexpr const char* kMixed = R"([[rule]]
saved_by = "*norm*"
action = "recompute"

[[rule]]
action = "offload"
)";

using Forward = std::function<at::Tensor(TinyModel&, Step*, int)>;

/// A session whose last step was traced.
struct Traced {
  Traced(SessionOptions options, int steps, const Forward& forward = testing::single_step)
      : session(std::move(options)) {
    session.register_model(model);
    (void)testing::train(model, &session, steps, [&](Step* step, int i) {
      // Traces the next step; it may be called within a step as well as between two.
      if (i == steps - 2) session.trace_next_step();
      if (i == steps - 1) at_start = host_memory();
      return forward(model, step, i);
    });
    events = session.step_events();
    report = session.report();
  }

  [[nodiscard]] std::int64_t measured_peak() const {
    return static_cast<std::int64_t>((report.device_peak - at_start).count());
  }
  [[nodiscard]] std::vector<std::string> names(const std::vector<TraceSpan>& spans) const {
    std::vector<std::string> all;
    for (const TraceSpan& span : spans) all.push_back(span.name);
    return all;
  }

  TinyModel model{{}};
  Session session;
  Bytes at_start;
  std::shared_ptr<const StepEvents> events;
  SessionReport report;
};

std::string detail(const TraceSpan& span, const std::string& key) {
  for (const auto& [name, value] : span.details) {
    if (name == key) return value;
  }
  return "none";
}

using CopyKey = std::tuple<std::string, std::string, std::string>;

/// Which buffers were copied, in no order.
std::vector<CopyKey> copies(const Trace& trace, const std::string& process,
                            const std::string& track) {
  std::vector<CopyKey> all;
  for (const TraceProcess& each : trace.processes) {
    for (const TraceTrack& stream : each.tracks) {
      if (each.name != process || stream.name != track) continue;
      for (const TraceSpan& span : stream.spans) {
        all.emplace_back(span.name, detail(span, "bytes"), detail(span, "micro-batch"));
      }
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

/// Bytes of the plan's buffers by their names, for chunk 0.
std::map<std::string, std::uint64_t> sizes(const Plan& plan) {
  std::map<std::string, std::uint64_t> all;
  for (const Decision& decision : plan.chunks[0].decisions) {
    all[buffer_name(plan.chunks[0], decision.buffer)] = decision.bytes.count();
  }
  return all;
}

std::uint64_t total(const std::vector<TraceSpan>& spans, const Plan& plan) {
  const std::map<std::string, std::uint64_t> known = sizes(plan);
  std::uint64_t bytes = 0;
  for (const TraceSpan& span : spans) bytes += known.at(span.name);
  return bytes;
}

void expect_in_order(const std::vector<TraceSpan>& spans) {
  std::int64_t end = 0;
  for (const TraceSpan& span : spans) {
    EXPECT_GE(span.begin_ns, end) << span.name;
    EXPECT_GE(span.end_ns, span.begin_ns) << span.name;
    end = span.end_ns;
  }
}

void expect_whole(const StepEvents& events) {
  expect_in_order(events.passes);
  expect_in_order(events.compute);
  expect_in_order(events.copies_out);
  expect_in_order(events.copies_back);
  std::int64_t before = -1;
  for (const TracePoint& point : events.memory) {
    EXPECT_GT(point.ns, before);
    before = point.ns;
  }
}

std::int64_t highest(const StepEvents& events) {
  std::int64_t most = 0;
  for (const TracePoint& point : events.memory) most = std::max(most, point.value);
  return most;
}

TEST(TracedStep, HasEveryCopyWithItsBytesAndNothingOverlaps) {
  const Traced traced(testing::offload_everything(), 5);
  ASSERT_NE(traced.events, nullptr);
  expect_whole(*traced.events);
  EXPECT_EQ(total(traced.events->copies_out, *traced.session.plan()),
            traced.report.bytes_out.count());
  EXPECT_EQ(total(traced.events->copies_back, *traced.session.plan()),
            traced.report.bytes_back.count());
  EXPECT_GT(traced.report.bytes_back, 0_B);
  EXPECT_TRUE(traced.report.fallbacks.empty()) << traced.report;
}

TEST(TracedStep, CopiesABufferBackOnlyAfterItWasCopiedOut) {
  const Traced traced(testing::offload_everything(), 5);
  std::map<std::string, std::int64_t> out;
  for (const TraceSpan& span : traced.events->copies_out) out[span.name] = span.end_ns;
  for (const TraceSpan& span : traced.events->copies_back) {
    ASSERT_TRUE(out.contains(span.name)) << span.name;
    EXPECT_GE(span.begin_ns, out[span.name]) << span.name;
  }
}

TEST(TracedStep, HasACurveOfMemoryWhoseTopIsTheMeasuredPeak) {
  for (const SessionOptions& options :
       {testing::offload_everything(), testing::recompute_everything(), testing::with_rules(kMixed),
        testing::with_rules("")}) {
    const Traced traced(options, 5);
    EXPECT_EQ(highest(*traced.events), traced.measured_peak());
    EXPECT_GT(highest(*traced.events), 0);
  }
}

TEST(TracedStep, IsNamedByPassesScopesAndOperators) {
  const Traced traced(testing::offload_everything(), 5);
  EXPECT_THAT(traced.names(traced.events->passes),
              ElementsAre("forward, chunk 0, micro-batch 0", "backward, chunk 0, micro-batch 0"));
  const std::vector<std::string> compute = traced.names(traced.events->compute);
  EXPECT_THAT(compute, Contains("layers.1.attention.qkv aten::mm"));
  EXPECT_THAT(compute, Contains(::testing::EndsWith(" backward")));
}

TEST(TracedStep, ShowsWhatIsRepeatedAndWaitedFor) {
  const Traced traced(testing::with_rules(kMixed), 5);
  expect_whole(*traced.events);
  ASSERT_GT(traced.report.repeated_calls, 0U);
  std::map<std::string, int> categories;
  for (const TraceSpan& span : traced.events->compute) ++categories[span.category];
  EXPECT_GT(categories["replay"], 0);
  EXPECT_GT(categories["wait"], 0);
  EXPECT_GT(categories["forward"], 0);
  EXPECT_GT(categories["backward"], 0);
}

TEST(TracedStep, HasThePredictedCopies) {
  for (const char* rules : {"[[rule]]\naction = \"offload\"\n", kMixed}) {
    const Traced traced(testing::with_rules(rules), 6);
    const Trace trace = traced.session.trace();
    ASSERT_EQ(trace.processes.size(), 2U);
    EXPECT_EQ(trace.processes[0].name, "predicted");
    EXPECT_EQ(trace.processes[1].name, "measured");
    for (const char* track : {"copy out", "copy back"}) {
      EXPECT_FALSE(copies(trace, "measured", track).empty());
      EXPECT_EQ(copies(trace, "measured", track), copies(trace, "predicted", track)) << rules;
    }
  }
}

TEST(TracedStep, HasThePassesOfItsMicroBatches) {
  const Forward accumulate = [](TinyModel& model, Step* /*step*/, int i) {
    return testing::accumulated_step(model, i, 2);
  };
  const Traced one_by_one(testing::offload_everything(), 6, accumulate);
  EXPECT_THAT(one_by_one.names(one_by_one.events->passes),
              ElementsAre("forward, chunk 0, micro-batch 0", "backward, chunk 0, micro-batch 0",
                          "forward, chunk 0, micro-batch 1", "backward, chunk 0, micro-batch 1"));
  expect_whole(*one_by_one.events);
  const Forward pipeline = [](TinyModel& model, Step* step, int i) {
    return testing::gpipe_step(model, step, i, 3);
  };
  const Traced offload_window(testing::offload_everything(), 6, pipeline);
  expect_whole(*offload_window.events);
  const Trace trace = offload_window.session.trace();
  EXPECT_EQ(copies(trace, "measured", "copy out"), copies(trace, "predicted", "copy out"));
  EXPECT_EQ(highest(*offload_window.events), offload_window.measured_peak());
}

TEST(TracedStep, MayBeTheRecordingStep) {
  Session session(testing::offload_everything());
  TinyModel model{{}};
  session.register_model(model);
  session.trace_next_step();
  (void)testing::train(model, &session, 1,
                       [&](Step* step, int i) { return testing::single_step(model, step, i); });
  const auto events = session.step_events();
  ASSERT_NE(events, nullptr);
  expect_whole(*events);
  EXPECT_GT(total(events->copies_out, *session.plan()), 0U);
  const Trace trace = session.trace();
  ASSERT_EQ(trace.processes.size(), 1U);
  EXPECT_EQ(trace.processes[0].name, "measured");
}

TEST(TracedStep, IsKeptUntilAnotherStepIsTraced) {
  Traced traced(testing::offload_everything(), 4);
  const auto again = [&] {
    (void)testing::train(traced.model, &traced.session, 1, [&](Step* step, int i) {
      return testing::single_step(traced.model, step, i);
    });
  };
  again();
  EXPECT_EQ(traced.session.step_events(), traced.events);
  traced.session.trace_next_step();
  again();
  const auto later = traced.session.step_events();
  EXPECT_NE(later, traced.events);
  EXPECT_EQ(later->copies_out.size(), traced.events->copies_out.size());
}

TEST(TracedStep, IsDiscardedIfNotReadBeforeTheNextOne) {
  TinyModel model{{}};
  Session session(testing::offload_everything());
  session.register_model(model);
  (void)testing::train(model, &session, 5, [&](Step* step, int i) {
    session.trace_next_step();
    return testing::single_step(model, step, i);
  });
  const auto step = session.step();  // It is traced, too.
  EXPECT_EQ(session.step_events(), nullptr);
}

TEST(TracedStep, HasTheSameBits) {
  Session session(testing::with_rules(kMixed));
  const auto forward = [&](TinyModel& model, Step* step, int i) {
    if (step != nullptr) session.trace_next_step();
    return testing::single_step(model, step, i);
  };
  EXPECT_EQ(testing::difference({}, session, 5, forward), 0);
  EXPECT_NE(session.step_events(), nullptr);
}

TEST(TracedStep, MatchesThePredictionOfABudgetedPlan) {
  SessionOptions options = testing::with_rules("");
  options.budget = Budget::share(0.7);
  options.plan_in_background = false;
  const Traced traced(std::move(options), 12);
  ASSERT_TRUE(traced.report.budget);
  EXPECT_EQ(highest(*traced.events),
            static_cast<std::int64_t>(traced.report.budget->measured_peak.count()));
  const Trace trace = traced.session.trace();
  ASSERT_EQ(trace.processes.size(), 2U);
  EXPECT_EQ(copies(trace, "measured", "copy out"), copies(trace, "predicted", "copy out"));
  EXPECT_EQ(copies(trace, "measured", "copy back"), copies(trace, "predicted", "copy back"));
}

TEST(TracedStep, IsMissingBeforeOneWasTraced) {
  Session session(testing::offload_everything());
  EXPECT_EQ(session.step_events(), nullptr);
  EXPECT_THAT(error_text<InvalidArgument>([&] { (void)session.trace(); }),
              HasSubstr("[trace] no step was traced yet; call trace_next_step()"));
}

TEST(TracedStep, WantsScopes) {
  Traced traced(testing::offload_everything(), 3);
  for (const bool traces : {false, true}) {
    if (traces) traced.session.trace_next_step();
    EXPECT_FALSE(traced.session.next_step_records());
    const auto step = traced.session.step();
    EXPECT_EQ(Scope::wanted(), traces);
  }
}

}  // namespace
}  // namespace spillway
