#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/faulty_device.hpp"
#include "torch/execute/session_core.hpp"
#include "torch/hooks/interception.hpp"
#include "torch/support/training.hpp"
#include "torch/support/warnings.hpp"
#include "torch/support/wrapping_torch_device.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::count_different;
using testing::difference;
using ::testing::HasSubstr;
using testing::offload_everything;
using testing::single_step;
using testing::TinyModel;
using testing::Warnings;

TEST(Session, WorksWhenSizesChange) {
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

TEST(Session, RecordsAgainWhenTheModelChanges) {
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

TEST(Session, RecordsAgainWhenAnotherTensorOfTheSameKindIsSaved) {
  // Every later site looks as profiled, but is another one.
  const auto step = [](TinyModel& model, Step*, int i) {
    at::Tensor h = model.hidden(model.tokens(2, 32, i));
    for (int layer = 0; layer < 4; ++layer) {
      if (i >= 3 && layer == i % 4) h = h.sigmoid();
      h = h.tanh() * h.sin();
    }
    at::Tensor loss = (h * h.exp()).mean();
    loss.backward();
    return loss;
  };
  for (const SessionOptions& options :
       {offload_everything(), testing::recompute_everything(),
        testing::with_rules("[[rule]]\nproducer = \"aten::tanh\"\naction = \"recompute\"\n"
                            "[[rule]]\naction = \"offload\"\n")}) {
    Session session(options);
    EXPECT_EQ(difference({}, session, 8, step), 0);
    EXPECT_GT(session.report().recorded_steps, 1U) << session.report();
  }
}

TEST(Session, KeepsWhatDoesNotFitInTheHostTier) {
  SessionOptions options = offload_everything();
  options.rules =
      parse_rules("[[rule]]\naction = \"offload\"\n[limits]\nhost = \"128 KiB\"\n", "t");
  Session session(std::move(options));
  EXPECT_EQ(difference({}, session, 4, single_step), 0);
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
                         return single_step(model, step, i);
                       }),
            0);
}

TEST(Session, WarnsOnceWhenTheHostTierIsFull) {
  SessionOptions options = offload_everything();
  options.host = 128_KiB;
  Session session(std::move(options));
  const Warnings warnings;
  EXPECT_EQ(difference({}, session, 4, single_step), 0);
  ASSERT_EQ(warnings.texts().size(), 1U);
  EXPECT_THAT(
      warnings.texts()[0],
      ::testing::MatchesRegex(
          ".*\\[offload\\] no room in host memory for a buffer of [0-9.]+ KiB, which stays "
          "on the device: [0-9.]+ KiB of at most 128.0 KiB are in use; raise `host` under "
          "\\[limits\\] in the rules, or SessionOptions::host\\. The session continues "
          "and counts such buffers in its report. This warning appears once per session\\."));
}

/// The CPU with a device on which host memory cannot be pinned.
class UnlockableDevice final : public testing::WrappingTorchDevice {
 public:
  [[nodiscard]] Device& device() override { return device_; }
  [[nodiscard]] Stream& current_stream() override { return *stream_; }
  void catch_up(Stream& stream) override { stream.synchronize(); }
  [[nodiscard]] Bytes host_chunk() const override { return SlabOptions{}.chunk; }

 private:
  testing::FaultyDevice device_{inner_device(),
                                {.failing_registration = 0, .failing_registrations = 1000}};
  std::unique_ptr<Stream> stream_ = device_.make_stream("cpu");
};

TEST(Session, KeepsEverythingIfHostMemoryCannotBePinned) {
  const testing::Deterministic deterministic;
  TinyModel baseline({});
  const auto forward = [](TinyModel& model) {
    return [&model](Step* step, int i) { return single_step(model, step, i); };
  };
  const auto without = testing::train(baseline, nullptr, 3, forward(baseline));
  const Warnings warnings;
  install_interception();
  const auto core =
      std::make_shared<SessionCore>(offload_everything(), std::make_unique<UnlockableDevice>());
  TinyModel managed({});
  for (const at::Tensor& parameter : managed.parameters()) {
    core->register_fixed(parameter, FixedReason::kParameter);
  }
  std::vector<at::Tensor> with;
  for (int i = 0; i < 3; ++i) {
    core->begin_step({});
    const auto values = testing::train(managed, nullptr, 1, [&](Step*, int) {
      at::manual_seed(100 + static_cast<std::uint64_t>(i));
      return single_step(managed, nullptr, i);
    });
    with.insert(with.end(), values.begin(), values.end());
    core->end_any_step();
  }
  EXPECT_EQ(count_different(without, with), 0);
  const SessionReport report = core->report();
  EXPECT_EQ(report.bytes_out, 0_B);
  EXPECT_EQ(report.host_peak, 0_B);
  EXPECT_EQ(report.saved_peak_with, report.saved_peak_without);
  EXPECT_GT(report.fallbacks.at("host memory could not be allocated"), 10U) << report;
  ASSERT_EQ(warnings.texts().size(), 1U);
  EXPECT_THAT(warnings.texts()[0],
              HasSubstr("[slab] cannot pin 64.0 MiB of host memory after the first 0 B: [register] "
                        "the pages cannot be locked, as the test wants it; "));
}

TEST(Session, TakesAnotherNumberOfMicroBatches) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 6,
                       [](TinyModel& model, Step*, int i) {
                         return testing::accumulated_step(model, i, 1 + (i * 2) % 5);
                       }),
            0);
  EXPECT_EQ(session.report().recorded_steps, 1U);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
}

TEST(Session, TakesAnotherNumberOfMicroBatchesInFlight) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 6,
                       [](TinyModel& model, Step* step, int i) {
                         return testing::gpipe_step(model, step, i, 1 + (i * 2) % 5);
                       }),
            0);
  EXPECT_EQ(session.report().recorded_steps, 1U);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
}

}  // namespace
}  // namespace spillway
