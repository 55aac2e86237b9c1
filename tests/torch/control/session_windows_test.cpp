// Windows that the session fits to the profile because none is given.
#include <stdexcept>
#include <utility>

#include <gtest/gtest.h>

#include "torch/execute/session_core.hpp"
#include "torch/support/training.hpp"
#include "torch/support/wrapping_torch_device.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::difference;
using testing::gpipe_step;
using testing::single_step;
using testing::TinyModel;

SessionOptions without_windows(const std::string& rules) {
  SessionOptions options = testing::with_rules(rules);
  options.offload_window = options.prefetch_window = std::nullopt;
  return options;
}

constexpr const char* kOffload = "[[rule]]\naction = \"offload\"\n";
constexpr const char* kMixed =
    "[[rule]]\nproducer = \"aten::gelu\"\naction = \"recompute\"\n[[rule]]\naction = \"offload\"\n";

/// Whether the plan has fitted windows.
bool has_windows(const Plan& plan) {
  return !plan.chunks[0].residency.empty() ||
         (plan.limits.offload_window && plan.limits.prefetch_window);
}

TEST(FittedWindows, KeepTheBitsAndOffload) {
  for (const char* rules : {kOffload, kMixed}) {
    Session session(without_windows(rules));
    EXPECT_EQ(difference({}, session, 6, single_step), 0);
    EXPECT_TRUE(has_windows(*session.plan()));
    const SessionReport report = session.report();
    EXPECT_GT(report.bytes_out, 0_B) << report;
    EXPECT_LT(report.saved_peak_with, report.saved_peak_without) << report;
    EXPECT_TRUE(report.fallbacks.empty()) << report;
    EXPECT_EQ(report.recorded_steps, 1U);
  }
}

TEST(FittedWindows, FollowTheNumberOfPassesInFlight) {
  Session session(without_windows(kOffload));
  const auto passes = [](TinyModel& model, Step* step, int i) {
    return gpipe_step(model, step, i, 1 + i % 3);
  };
  EXPECT_EQ(difference({}, session, 8, passes), 0);
  const SessionReport report = session.report();
  EXPECT_GT(report.bytes_out, 0_B) << report;
  EXPECT_TRUE(report.fallbacks.empty()) << report;
}

TEST(FittedWindows, StopWhereEveryStepHasAnotherOrder) {
  Session session(without_windows(kOffload));
  // Steps of 1, 2, 3, ... passes: more orders than are fitted or cached.
  const auto passes = [](TinyModel& model, Step* step, int i) {
    return gpipe_step(model, step, i, 1 + i % 20);
  };
  EXPECT_EQ(difference({}, session, 24, passes), 0);
  EXPECT_TRUE(session.plan()->chunks[0].residency.empty());
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
}

/// Once, a time cannot be read.
class UnknownTime final : public testing::WrappingTorchDevice {
 public:
  explicit UnknownTime(bool& fails) : fails_(&fails) {}
  [[nodiscard]] Nanoseconds elapsed(const TimeMark& from, const TimeMark& to) override {
    if (std::exchange(*fails_, false)) throw std::runtime_error("as the test wants it");
    return inner().elapsed(from, to);
  }

 private:
  bool* fails_;
};

/// Trains with a session on a device of the test's.
class OwnDevice {
 public:
  explicit OwnDevice(std::unique_ptr<TorchDevice> device) {
    SessionOptions options = without_windows(kOffload);
    options.time_waits_every = 0;
    install_interception();
    core = std::make_shared<SessionCore>(std::move(options), std::move(device));
    for (const at::Tensor& each : model_.parameters()) {
      core->register_fixed(each, FixedReason::kParameter);
    }
  }

  [[nodiscard]] std::vector<at::Tensor> gradients() {
    model_.zero_gradients();
    model_.loss(model_.tokens(2, 32, 0)).backward();
    return model_.gradients();
  }

  std::shared_ptr<SessionCore> core;

 private:
  testing::Deterministic deterministic_;
  TinyModel model_{{.dropout = 0}};
};

TEST(FittedWindows, StayIfTheTimesOfAStepCannotBeUsed) {
  bool fails = false;
  OwnDevice training(std::make_unique<UnknownTime>(fails));
  const std::vector<at::Tensor> right = training.gradients();
  for (int i = 0; i < 6; ++i) {
    fails = i == 2;  // The step before was timed.
    training.core->begin_step({});
    EXPECT_FALSE(fails);
    EXPECT_EQ(testing::count_different(right, training.gradients()), 0);
    training.core->end_any_step();
  }
  const SessionReport report = training.core->report();
  EXPECT_EQ(report.fallbacks.at("planning failed: as the test wants it"), 1U);
  EXPECT_TRUE(has_windows(*training.core->plan()));
}

/// Steps are known to be over only when the test says so.
class LateDevice final : public testing::WrappingTorchDevice {
 public:
  explicit LateDevice(const bool& late) : late_(&late) {}
  [[nodiscard]] bool has_happened(const TimeMark& mark) const override {
    return !*late_ && WrappingTorchDevice::has_happened(mark);
  }

 private:
  const bool* late_;
};

TEST(FittedWindows, GetTheTimesOfAStepThatIsReadAfterATracedOne) {
  bool late = false;
  OwnDevice training(std::make_unique<LateDevice>(late));
  for (int i = 0; i < 4; ++i) {
    late = i == 2;  // The step before was timed.
    if (i == 2) training.core->trace_next_step();
    training.core->begin_step({});
    (void)training.gradients();
    training.core->end_any_step();
  }
  for (const ChunkProfile& chunk : training.core->profile()->chunks) {
    EXPECT_GT(chunk.forward_ns, 0);
    EXPECT_GT(chunk.backward_ns, 0);
  }
  EXPECT_NE(training.core->step_events(), nullptr);
}

TEST(FittedWindows, AreThoseThatAreGiven) {
  Bytes before;
  for (const Bytes window : {1_KiB, 64_KiB, 1_GiB}) {
    SessionOptions options = without_windows(kOffload);
    options.offload_window = options.prefetch_window = window;
    Session session(options);
    EXPECT_EQ(difference({}, session, 4, single_step), 0);
    EXPECT_FALSE(session.plan()->chunks[0].residency.empty());
    EXPECT_EQ(session.plan()->limits.offload_window, window);
    EXPECT_GT(session.report().saved_peak_with, before) << session.report();
    before = session.report().saved_peak_with;
  }
}

TEST(ConstantWindows, AreThoseOfThePlanThatRulesMade) {
  // A multiple of the offloaded modules of a layer, whose size only the profile has.
  const auto peak = [](int modules) {
    Session session(
        without_windows("[[rule]]\naction = \"offload\"\n[limits]\noffload_window_modules = " +
                        std::to_string(modules) + "\nprefetch_window = \"1 B\"\n"));
    EXPECT_EQ(difference({}, session, 4, single_step), 0);
    EXPECT_TRUE(session.plan()->limits.offload_window);
    return session.report().saved_peak_with;
  };
  EXPECT_LT(peak(0), peak(100));
}

}  // namespace
}  // namespace spillway
