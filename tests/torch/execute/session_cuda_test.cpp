#include <algorithm>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "spillway/cuda/cuda_device.hpp"
#include "spillway/torch/session.hpp"
#include "torch/support/timeline_queries.hpp"
#include "torch/support/tiny_model.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::count_different;
using testing::kept_peak;
using testing::TinyModel;
using testing::TinyOptions;

class CudaSession : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_system().devices.empty()) GTEST_SKIP() << "skipped: no CUDA device";
    shape_.device = at::Device(at::kCUDA, 0);
    shape_.hidden = 512;
    shape_.vocabulary = 1000;
  }

  static SessionOptions offload_everything() {
    SessionOptions options;
    options.rules = parse_rules("[[rule]]\naction = \"offload\"\n", "test.toml");
    options.host = 2_GiB;
    options.offload_window = 8_MiB;
    options.prefetch_window = 8_MiB;
    return options;
  }

  /// Losses and gradients of a few steps, with or without a session.
  template <typename Forward>
  std::vector<at::Tensor> train(Session* session, int steps, Forward&& forward) {
    const testing::Deterministic deterministic;
    TinyModel model(shape_);
    if (session != nullptr) session->register_model(model);
    std::vector<at::Tensor> values;
    for (int i = 0; i < steps; ++i) {
      model.zero_gradients();
      at::manual_seed(static_cast<std::uint64_t>(100 + i));
      {
        std::optional<Step> step;
        if (session != nullptr) step.emplace(session->step());
        values.push_back(forward(model, step ? &*step : nullptr, i).detach().clone());
      }
      for (at::Tensor& gradient : model.gradients()) values.push_back(std::move(gradient));
      model.update();
    }
    return values;
  }

  template <typename Forward>
  int difference(Session& session, int steps, Forward&& forward) {
    const auto without = train(nullptr, steps, forward);
    return count_different(without, train(&session, steps, forward));
  }

  static at::Tensor single_step(TinyModel& model, Step* /*step*/, int i) {
    at::Tensor loss = model.loss(model.tokens(4, 512, i));
    loss.backward();
    return loss;
  }

  TinyOptions shape_;
};

/// The amount depends on the device; the test checks that it is measured at all.
TEST_F(CudaSession, MeasuresHowMuchCopiesSlowOperatorsDown) {
  Session session(offload_everything());
  TinyModel model(shape_);
  session.register_model(model);
  {
    const Step step = session.step();
    model.loss(model.tokens(2, 64, 0)).backward();
  }
  const LinkSpeed link = session.profile()->link;
  ASSERT_EQ(link.slows_out.has_value(), link.slows_back.has_value());
  if (!link.slows_out) GTEST_SKIP() << "skipped: times of the device are too far apart";
  RecordProperty("slows", std::to_string(*link.slows_out) + " " + std::to_string(*link.slows_back));
  for (const double share : {*link.slows_out, *link.slows_back}) {
    EXPECT_GE(share, 0);
    EXPECT_LT(share, 0.5);
  }
}

TEST_F(CudaSession, GivesTheSameBitsFromTheFirstStepOn) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    shape_.dtype = dtype;
    Session session(offload_everything());
    EXPECT_EQ(difference(session, 6, single_step), 0);
    const SessionReport report = session.report();
    EXPECT_EQ(report.recorded_steps, 1U);
    EXPECT_GT(report.bytes_back, 10_MiB) << report;
    EXPECT_LT(report.saved_peak_with.count() * 2, report.saved_peak_without.count()) << report;
    EXPECT_TRUE(report.fallbacks.empty()) << report;
  }
}

TEST_F(CudaSession, KeepsSeveralPassesInFlight) {
  Session session(offload_everything());
  EXPECT_EQ(difference(session, 5,
                       [](TinyModel& model, Step* step, int i) {
                         std::vector<at::Tensor> losses;
                         for (int micro = 0; micro < 3; ++micro) {
                           if (step != nullptr) step->pass(0, micro);
                           losses.push_back(model.loss(model.tokens(2, 256 + 64 * micro, 10 * i)));
                         }
                         at::Tensor total = losses[0].detach();
                         for (const at::Tensor& loss : losses) {
                           loss.backward();
                           total = total + loss.detach();
                         }
                         return total;
                       }),
            0);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
}

TEST_F(CudaSession, WorksOnAStreamOfTheUsers) {
  Session session(offload_everything());
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  EXPECT_EQ(difference(session, 4,
                       [&](TinyModel& model, Step* step, int i) {
                         c10::cuda::device_synchronize();
                         at::Tensor loss;
                         {
                           const c10::cuda::CUDAStreamGuard guard(stream);
                           loss = single_step(model, step, i);
                         }
                         c10::cuda::device_synchronize();
                         return loss;
                       }),
            0);
}

TEST_F(CudaSession, DoesNotGrowOverManySteps) {
  Session session(offload_everything());
  TinyModel model(shape_);
  session.register_model(model);
  std::int64_t before = 0;
  Bytes host;
  for (int i = 0; i < 60; ++i) {
    model.zero_gradients();
    {
      const auto step = session.step();
      model.loss(model.tokens(4, 512, i)).backward();
    }
    const std::int64_t now =
        c10::cuda::CUDACachingAllocator::getDeviceStats(0).reserved_bytes[0].current;
    if (i == 10) {
      before = now;
      host = session.report().host_peak;
    }
    if (i > 10) {
      EXPECT_EQ(now, before) << "step " << i;
    }
  }
  EXPECT_EQ(session.report().host_peak, host);
}

TEST_F(CudaSession, RecordsATimelineWithThePeakOfAStepThatKeepsEverything) {
  SessionOptions options = offload_everything();
  options.rules = {};
  Session session(std::move(options));
  TinyModel model(shape_);
  session.register_model(model);
  std::int64_t measured = 0;
  for (int i = 0; i < 4; ++i) {
    model.zero_gradients();
    const at::Tensor tokens = model.tokens(4, 512, i);
    const std::int64_t before =
        c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocated_bytes[0].current;
    {
      const auto step = session.step();
      model.loss(tokens).backward();
    }
    measured = static_cast<std::int64_t>(session.report().device_peak.count()) - before;
  }
  const Profile& profile = *session.profile();
  const ChunkProfile& chunk = profile.chunks.at(0);
  EXPECT_EQ(profile_from_json(to_json(profile), "p.json"), profile);
  EXPECT_EQ(chunk.timeline.back().kind, MomentKind::kEnd);
  EXPECT_GT(chunk.forward_ns, 0);
  EXPECT_GT(chunk.backward_ns, 0);
  const auto predicted = static_cast<double>(kept_peak(profile));
  // A cached block that is a little too large is handed out whole.
  EXPECT_NEAR(static_cast<double>(measured) / predicted, 1, 0.02) << measured;
}

TEST_F(CudaSession, KeepsToACap) {
  Plan plan;
  Profile profile;
  {
    Session session(offload_everything());
    EXPECT_EQ(difference(session, 1, single_step), 0);
    plan = *session.plan();
    profile = *session.profile();
  }
  Bytes largest;
  for (const BufferProfile& buffer : profile.chunks[0].buffers) {
    if (buffer.fixed == FixedReason::kNone) largest = std::max(largest, buffer.size);
  }
  for (const Bytes allowed : {0_B, 16_MiB, 64_MiB}) {
    plan.cap = allowed;
    plan.chunks[0].residency = {};
    plan.limits.offload_window = plan.limits.prefetch_window = 1_GiB;
    SessionOptions options = offload_everything();
    options.offload_window = 1_GiB;
    options.prefetch_window = 1_GiB;
    options.plan = plan;
    Session session(std::move(options));
    EXPECT_EQ(difference(session, 4, single_step), 0);
    const SessionReport report = session.report();
    EXPECT_LE(report.saved_peak_with, allowed + largest + largest) << report;
    EXPECT_TRUE(report.fallbacks.empty()) << report;
  }
}

TEST_F(CudaSession, StaysWithinABudget) {
  for (const double share : {0.8, 0.6}) {
    SessionOptions options = offload_everything();
    options.rules = {};
    options.budget = Budget::share(share);
    options.plan_in_background = false;
    Session session(std::move(options));
    // CUDA's allocator rounds requests up; the plan includes the difference after it was measured.
    EXPECT_EQ(difference(session, 24, single_step), 0);
    const SessionReport report = session.report();
    ASSERT_TRUE(report.budget);
    EXPECT_GE(report.budget->plans, 1U) << report;
    EXPECT_GT(report.budget->measured_peak, 0_B) << report;
    EXPECT_LE(report.budget->measured_peak, report.budget->budget) << report;
    EXPECT_TRUE(report.fallbacks.empty()) << report;
  }
}

TEST_F(CudaSession, TracesAStep) {
  SessionOptions options = offload_everything();
  options.budget = Budget::share(0.7);
  options.rules = {};
  options.plan_in_background = false;
  Session session(std::move(options));
  const auto forward = [&](TinyModel& model, Step* step, int i) {
    if (step != nullptr && i == 14) session.trace_next_step();
    return single_step(model, step, i);
  };
  EXPECT_EQ(difference(session, 16, forward), 0);
  const auto events = session.step_events();
  ASSERT_NE(events, nullptr);
  for (const auto* track :
       {&events->passes, &events->compute, &events->copies_out, &events->copies_back}) {
    EXPECT_FALSE(track->empty());
    std::int64_t end = 0;
    for (const TraceSpan& span : *track) {
      EXPECT_GE(span.begin_ns, end) << span.name;
      EXPECT_GE(span.end_ns, span.begin_ns) << span.name;
      end = span.end_ns;
    }
  }
  std::int64_t most = 0;
  for (const TracePoint& point : events->memory) most = std::max(most, point.value);
  EXPECT_EQ(Bytes(static_cast<std::uint64_t>(most)), session.report().budget->measured_peak);
  EXPECT_EQ(session.trace().processes.size(), 2U);
}

/// A kernel that the dispatcher does not see writes into a tensor after autograd has saved it.
TEST_F(CudaSession, FindsInVerificationWhatAKernelWroteIntoASavedTensor) {
  const testing::Deterministic deterministic;
  at::manual_seed(3);
  at::Tensor weight =
      at::randn({512, 512}, at::TensorOptions(shape_.device)).set_requires_grad(true);
  const auto gradient = [&](int i) {
    weight.mutable_grad() = at::Tensor();
    at::Tensor loss;
    {
      const at::Tensor x = weight * 2;
      loss = (x * x).sum();
      if (i >= 3) {
        EXPECT_EQ(cudaMemsetAsync(x.data_ptr(), 0, x.nbytes(), c10::cuda::getCurrentCUDAStream()),
                  cudaSuccess);
      }
    }
    // Releases x.
    at::Tensor y = weight;
    for (int k = 0; k < 6; ++k) y = (y * 1.5).sin();
    (loss + y.sum()).backward();
    return weight.grad().clone();
  };
  SessionOptions options = offload_everything();
  options.verify_every = 1;
  options.offload_window = 2_MiB;
  Session session(std::move(options));
  session.register_fixed(weight, FixedReason::kParameter);
  int errors = 0;
  for (int i = 0; i < 7; ++i) {
    const at::Tensor right = gradient(i);
    Step step = session.step();
    const at::Tensor found = gradient(i);
    try {
      step.end();
      EXPECT_EQ(count_different({right}, {found}), 0) << i << session.report();
    } catch (const VerificationError& error) {
      ++errors;
      EXPECT_EQ(i, 3);
      EXPECT_THAT(error.what(),
                  ::testing::HasSubstr("it was written in place after autograd had saved it"));
    }
  }
  EXPECT_EQ(errors, 1) << session.report();
}

constexpr const char* kCaptured = "a stream was being captured in a CUDA graph: left to autograd";

/// A CUDA graph of a forward and a backward pass, and the gradients that it computes.
class CapturedStep {
 public:
  explicit CapturedStep(TinyModel& model) : model_(&model), tokens_(model.tokens(4, 512, 1)) {}

  void warm_up() {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    run();
    model_->zero_gradients();
    c10::cuda::device_synchronize();
  }
  template <typename F>
  void on_its_stream(F&& work) {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    work();
  }
  void capture() {
    capture([this] { run(); });
  }
  template <typename F>
  void capture(F&& captured) {
    c10::cuda::device_synchronize();
    const c10::cuda::CUDAStreamGuard guard(stream_);
    graph_.capture_begin();
    captured();
    graph_.capture_end();
  }
  void run() { model_->loss(tokens_).backward(); }
  std::vector<at::Tensor> launched() {
    graph_.replay();
    c10::cuda::device_synchronize();
    return model_->gradients();
  }

 private:
  TinyModel* model_;
  at::Tensor tokens_;
  c10::cuda::CUDAStream stream_ = c10::cuda::getStreamFromPool();
  at::cuda::CUDAGraph graph_;
};

TEST_F(CudaSession, LeavesToAutogradWhatACudaGraphCaptures) {
  const testing::Deterministic deterministic;
  shape_.dropout = 0;
  TinyModel model(shape_);
  CapturedStep expected_step(model);
  expected_step.run();
  const std::vector<at::Tensor> expected = model.gradients();
  model.zero_gradients();
  for (const bool step_is_captured : {false, true}) {
    Session session(offload_everything());
    session.register_model(model);
    for (int i = 0; i < 3; ++i) {
      const auto step = session.step();
      CapturedStep(model).run();
      EXPECT_EQ(count_different(expected, model.gradients()), 0);
      model.zero_gradients();
    }
    CapturedStep captured(model);
    captured.warm_up();
    if (step_is_captured) {
      captured.capture([&] {
        const auto step = session.step();
        captured.run();
      });
    } else {
      const auto step = session.step();
      captured.capture();
    }
    EXPECT_EQ(count_different(expected, captured.launched()), 0);
    EXPECT_GT(session.report().fallbacks.at(kCaptured), 0U);
    model.zero_gradients();
    for (int i = 0; i < 3; ++i) {
      const auto step = session.step();
      CapturedStep(model).run();
      EXPECT_EQ(count_different(expected, model.gradients()), 0);
      model.zero_gradients();
    }
  }
}

TEST_F(CudaSession, RefusesACapturedBackwardPassWhatWasOffloadedBefore) {
  shape_.dropout = 0;
  TinyModel model(shape_);
  SessionOptions options = offload_everything();
  options.offload_window = Bytes(0);
  Session session(std::move(options));
  session.register_model(model);
  for (int i = 0; i < 2; ++i) {
    const auto step = session.step();
    CapturedStep(model).run();
    model.zero_gradients();
  }
  auto step = session.step();
  CapturedStep captured(model);
  // Autograd runs backward on the streams of forward.
  at::Tensor value;
  captured.on_its_stream([&] { value = model.loss(model.tokens(4, 512, 1)); });
  const at::Tensor any = at::ones({8}, at::kCUDA);
  std::string text;
  captured.capture([&] {
    (void)(any + 1);
    try {
      value.backward();
    } catch (const std::exception& error) {
      text = error.what();
    }
    value.reset();
  });
  EXPECT_NE(text.find("[unpack] a stream is being captured"), std::string::npos) << text;
  step.end();
  model.zero_gradients();
  const auto next = session.step();
  CapturedStep(model).run();
}

}  // namespace
}  // namespace spillway
