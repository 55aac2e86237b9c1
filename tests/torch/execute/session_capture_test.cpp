// A stream that is captured into a CUDA graph, as a device of the test says; session_cuda_test.cpp
// captures real ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/counting_device.hpp"
#include "support/error_text.hpp"
#include "torch/execute/session_core.hpp"
#include "torch/hooks/interception.hpp"
#include "torch/support/training.hpp"
#include "torch/support/warnings.hpp"
#include "torch/support/wrapping_torch_device.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::count_different;
using testing::error_text;
using ::testing::HasSubstr;
using testing::offload_everything;
using testing::TinyModel;
using testing::with_rules;

constexpr const char* kCounted = "a stream was being captured in a CUDA graph: left to autograd";

/// Whether the stream is being captured, and how often the device was used meanwhile: CUDA would
/// end the capture with an error.
struct Capture {
  bool on = false;
  int uses = 0;
};

class CapturingDevice final : public testing::WrappingTorchDevice {
 public:
  explicit CapturingDevice(Capture& capture) : capture_(&capture) {}

  [[nodiscard]] const testing::DeviceCalls& calls() const { return device_.calls(); }

  [[nodiscard]] bool is_capturing() const override { return capture_->on; }
  [[nodiscard]] Device& device() override { return device_; }
  [[nodiscard]] Stream& current_stream() override { return *used(stream_.get()); }
  void catch_up(Stream& stream) override { WrappingTorchDevice::catch_up(*used(&stream)); }
  [[nodiscard]] c10::Storage allocate(std::size_t bytes, Stream& stream) override {
    return WrappingTorchDevice::allocate(bytes, *used(&stream));
  }
  void beside(Stream& stream, const std::function<void(Stream&)>& work) override {
    WrappingTorchDevice::beside(*used(&stream), work);
  }
  void mark(Stream& stream, TimeMark& mark) override {
    used(this)->WrappingTorchDevice::mark(stream, mark);
  }
  [[nodiscard]] bool has_happened(const TimeMark& mark) const override {
    return used(this)->WrappingTorchDevice::has_happened(mark);
  }
  [[nodiscard]] Nanoseconds elapsed(const TimeMark& from, const TimeMark& to) override {
    return used(this)->WrappingTorchDevice::elapsed(from, to);
  }
  Bytes take_peak() override { return used(this)->WrappingTorchDevice::take_peak(); }

 private:
  template <typename T>
  T* used(T* what) const {
    if (capture_->on) ++capture_->uses;
    return what;
  }

  Capture* capture_;
  testing::CountingDevice device_{inner_device()};
  std::unique_ptr<Stream> stream_ = device_.make_stream("cpu");
};

class SessionCapture : public ::testing::Test {
 protected:
  void start(SessionOptions options) {
    install_interception();
    auto device = std::make_unique<CapturingDevice>(capture_);
    calls_ = &device->calls();
    core_ = std::make_shared<SessionCore>(std::move(options), std::move(device));
    for (const at::Tensor& parameter : model_.parameters()) {
      core_->register_fixed(parameter, FixedReason::kParameter);
    }
  }

  /// The work of streams and events so far; pinning goes on beside them.
  [[nodiscard]] std::uint64_t work() const {
    return calls_->copies + calls_->batches + calls_->records + calls_->waits + calls_->queries +
           calls_->synchronizes;
  }

  /// Runs `captured` as part of a CUDA graph, during which the session must not use the device.
  template <typename F>
  void capture(F&& captured) {
    const std::uint64_t before = work();
    capture_ = {true, 0};
    captured();
    capture_.on = false;
    EXPECT_EQ(capture_.uses, 0);
    EXPECT_EQ(work(), before);
  }

  at::Tensor loss(int i) {
    at::manual_seed(static_cast<std::uint64_t>(i));
    return model_.loss(model_.tokens(2, 32, i));
  }
  /// The gradients of a step that a session has no part in.
  std::vector<at::Tensor> expected(int i) {
    model_.zero_gradients();
    loss(i).backward();
    std::vector<at::Tensor> gradients = model_.gradients();
    model_.zero_gradients();
    return gradients;
  }
  int step(int i) {
    const std::vector<at::Tensor> right = expected(i);
    const auto number = core_->begin_step({});
    loss(i).backward();
    core_->end_step(number);
    return count_different(right, model_.gradients());
  }

  [[nodiscard]] std::uint64_t counted() const {
    const auto fallbacks = core_->report().fallbacks;
    const auto found = fallbacks.find(kCounted);
    return found == fallbacks.end() ? 0 : found->second;
  }

  const testing::Deterministic deterministic_;
  Capture capture_;
  TinyModel model_{testing::TinyOptions()};
  const testing::DeviceCalls* calls_ = nullptr;
  std::shared_ptr<SessionCore> core_;
};

TEST_F(SessionCapture, LeavesToAutogradWhatIsSavedMeanwhile) {
  for (const SessionOptions& options : {offload_everything(), testing::recompute_everything()}) {
    start(options);
    const testing::Warnings warnings;
    // A recording step, a verification step, a step of the plan.
    for (int i = 0; i < 4; ++i) {
      const std::vector<at::Tensor> right = expected(i);
      const auto number = core_->begin_step({});
      capture([&] { loss(i).backward(); });
      EXPECT_EQ(count_different(right, model_.gradients()), 0);
      core_->end_step(number);
      EXPECT_EQ(step(i + 10), 0);
    }
    EXPECT_GT(counted(), 4 * 30U) << core_->report();
    EXPECT_GT(core_->report().bytes_out + core_->report().bytes_recomputed, 0_B);
    ASSERT_EQ(warnings.texts().size(), 1U);
    EXPECT_THAT(warnings.texts()[0], HasSubstr("[capture] a CUDA graph is captured within a "
                                               "session"));
  }
}

TEST_F(SessionCapture, HasNoPartInAStepThatBeginsMeanwhile) {
  start(offload_everything());
  EXPECT_EQ(step(0), 0);
  const std::vector<at::Tensor> right = expected(1);
  capture([&] {
    const auto number = core_->begin_step({});
    loss(1).backward();
    core_->begin_explicit_pass(number, {0, 1});
    core_->end_step(number);
  });
  EXPECT_EQ(count_different(right, model_.gradients()), 0);
  EXPECT_EQ(core_->report().steps, 1U);
  EXPECT_EQ(counted(), 1U);
  EXPECT_EQ(step(2), 0);
}

TEST_F(SessionCapture, GivesTheBackwardPassWhatIsStillOnTheDevice) {
  SessionOptions options = with_rules("[[rule]]\naction = \"keep\"\n");
  start(options);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(i), 0);
  const std::vector<at::Tensor> right = expected(3);
  const auto number = core_->begin_step({});
  const at::Tensor value = loss(3);
  capture([&] { value.backward(); });
  EXPECT_EQ(count_different(right, model_.gradients()), 0);
  EXPECT_GT(counted(), 10U);
  core_->end_step(number);
  EXPECT_EQ(step(4), 0);
}

TEST_F(SessionCapture, RefusesTheBackwardPassWhatIsNotOnTheDeviceAnyMore) {
  struct Case {
    SessionOptions options;
    const char* found;
  };
  SessionOptions offload = offload_everything();
  offload.offload_window = Bytes(0);
  for (const auto& [options, found] :
       {Case{offload, "that is offloaded"},
        Case{testing::recompute_everything(), "that is to be recomputed"}}) {
    start(options);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(step(i), 0);
    const auto number = core_->begin_step({});
    at::Tensor value = loss(3);
    capture([&] {
      EXPECT_THAT(error_text<InvalidArgument>([&] { value.backward(); }),
                  ::testing::AllOf(HasSubstr("[unpack] a stream is being captured"),
                                   HasSubstr(found), HasSubstr("capture both passes")));
      value.reset();  // Frees the graph.
    });
    core_->end_step(number);
    EXPECT_EQ(step(4), 0);
  }
}

TEST_F(SessionCapture, EndsAfterItAStepThatEndsMeanwhile) {
  for (const SessionOptions& options : {offload_everything(), testing::recompute_everything()}) {
    start(options);
    for (int i = 0; i < 4; ++i) {
      const std::vector<at::Tensor> right = expected(i);
      const auto number = core_->begin_step({});
      const at::Tensor value = loss(i);
      value.backward();
      EXPECT_EQ(count_different(right, model_.gradients()), 0);
      capture([&] {
        core_->end_step(number);
        loss(i + 20).backward();  // Outside of all steps.
      });
      EXPECT_EQ(step(i + 10), 0);
      EXPECT_EQ(core_->report().steps, 2 * static_cast<std::uint64_t>(i) + 2);
    }
    EXPECT_EQ(core_->report().recorded_steps, 1U) << core_->report();
  }
}

}  // namespace
}  // namespace spillway
