// Captures into CUDA graphs beside other streams and threads, and originals that are written while
// the copy stream reads them.
#include <atomic>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/cuda/cuda_device.hpp"
#include "spillway/torch/session.hpp"
#include "torch/device/torch_device.hpp"
#include "torch/support/tiny_model.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;

constexpr const char* kOfACapture = "a stream was being captured in a CUDA graph: left to autograd";

/// Small programs on the device.
class CudaCapture : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_system().devices.empty()) GTEST_SKIP() << "skipped: no CUDA device";
  }

  [[nodiscard]] static SessionOptions with_rules(const char* rules) {
    SessionOptions options;
    options.rules = parse_rules(rules, "test.toml");
    options.host = 2_GiB;
    return options;
  }

  [[nodiscard]] static at::Tensor weight(std::int64_t rows) {
    const auto options = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
    return at::linspace(-1, 1, rows * rows, options).view({rows, rows}).set_requires_grad(true);
  }

  [[nodiscard]] static at::Tensor loss_of(const at::Tensor& weight) {
    at::Tensor x = weight * 2;
    for (int i = 0; i < 8; ++i) x = (x * 1.25).sin();
    return x.sum();
  }

  [[nodiscard]] static at::Tensor gradient_of(const at::Tensor& weight) {
    weight.mutable_grad() = at::Tensor();
    loss_of(weight).backward();
    return weight.grad().clone();
  }
};

/// Trains on the legacy stream of a thread of its own, in a session of its own, until it is freed.
class TrainingBeside {
 public:
  TrainingBeside(SessionOptions options, at::Tensor weight,
                 at::Tensor (*gradient_of)(const at::Tensor&))
      : right_(gradient_of(weight)),
        thread_([this, options = std::move(options), weight = std::move(weight), gradient_of] {
          Session session(options);
          session.register_fixed(weight, FixedReason::kParameter);
          for (; !stop_ || steps_ < 4; ++steps_) {
            const auto step = session.step();
            if (!gradient_of(weight).equal(right_)) ++wrong_;
          }
          report_ = session.report();
        }) {
    while (steps_ < 3) std::this_thread::yield();
  }
  TrainingBeside(const TrainingBeside&) = delete;
  TrainingBeside& operator=(const TrainingBeside&) = delete;
  ~TrainingBeside() {
    if (thread_.joinable()) (void)end();
  }

  /// Steps with another gradient than without a session.
  int end() {
    stop_ = true;
    thread_.join();
    return wrong_;
  }
  /// After end().
  [[nodiscard]] const SessionReport& report() const { return report_; }
  [[nodiscard]] int steps() const { return steps_; }

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<int> steps_ = 0;
  int wrong_ = 0;
  SessionReport report_;
  at::Tensor right_;
  std::thread thread_;
};

using CudaCopies = CudaCapture;

TEST_F(CudaCapture, IsSeenWhileAnotherThreadUsesTheLegacyStream) {
  const char* const rules = "[[rule]]\naction = \"offload\"\n";
  const at::Tensor mine = weight(512);
  const at::Tensor right = gradient_of(mine);
  SessionOptions moves = with_rules(rules);
  moves.offload_window = 0_B;
  TrainingBeside beside(std::move(moves), weight(256), &gradient_of);
  Session session(with_rules(rules));
  session.register_fixed(mine, FixedReason::kParameter);
  for (int i = 0; i < 3; ++i) {
    const auto step = session.step();
    EXPECT_TRUE(gradient_of(mine).equal(right)) << i;
  }
  for (int i = 0; i < 3; ++i) {
    at::cuda::CUDAGraph graph;
    {
      const auto step = session.step();
      const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
      c10::cuda::device_synchronize();
      mine.mutable_grad() = at::Tensor();
      const int before = beside.steps();
      // The other thread may allocate meanwhile.
      graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      const at::Tensor loss = loss_of(mine);
      while (beside.steps() < before + 2) std::this_thread::yield();
      loss.backward();
      graph.capture_end();
    }
    graph.replay();
    c10::cuda::device_synchronize();
    EXPECT_TRUE(mine.grad().equal(right)) << i;
    // What follows is not captured.
    const auto step = session.step();
    EXPECT_TRUE(gradient_of(mine).equal(right)) << i;
  }
  EXPECT_EQ(beside.end(), 0) << beside.report();
  EXPECT_GE(session.report().fallbacks.at(kOfACapture), 3 * 8U) << session.report();
  EXPECT_FALSE(beside.report().fallbacks.contains(kOfACapture)) << beside.report();
  EXPECT_GT(beside.report().bytes_out, 0_B) << beside.report();
}

TEST_F(CudaCapture, IsSeenUntilItIsEndedAlsoAfterAnError) {
  const auto device = make_cuda_torch_device(0);
  EXPECT_FALSE(device->is_capturing());
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  cudaGraph_t graph = nullptr;
  {
    const c10::cuda::CUDAStreamGuard guard(stream);
    EXPECT_FALSE(device->is_capturing());
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
    EXPECT_TRUE(device->is_capturing());
    std::thread([&] { EXPECT_FALSE(device->is_capturing()); }).join();
    EXPECT_NE(cudaStreamSynchronize(stream), cudaSuccess);  // Invalidates it.
    (void)cudaGetLastError();
    EXPECT_TRUE(device->is_capturing());
    EXPECT_NE(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    (void)cudaGetLastError();
    EXPECT_FALSE(device->is_capturing());
  }
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

// Asking CUDA about the legacy stream then is an error, and ends the capture.
TEST_F(CudaCapture, OfAStreamThatWaitsForTheLegacyOneGoesOn) {
  const auto device = make_cuda_torch_device(0);
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_FALSE(device->is_capturing());
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

// 64 MiB take a millisecond to copy; the write comes at once.
TEST_F(CudaCopies, OfWhatIsWrittenMeanwhileAreNotUsed) {
  const testing::Deterministic deterministic;
  const char* const rules =
      "[[rule]]\nproducer = \"aten::mul\"\naction = \"offload\"\n[[rule]]\naction = "
      "\"recompute\"\n";
  const at::Tensor weight = CudaCapture::weight(4096);
  const auto gradient = [&](int step) {
    weight.mutable_grad() = at::Tensor();
    const at::Tensor x = weight * 2;
    const at::Tensor y = x.sin();
    const at::Tensor z = y.cos() * x;
    if (step >= 3) x.variable_data().add_(1);
    const at::Tensor v = z.exp() * y;
    if (step >= 5) y.variable_data().mul_(0.5);
    (v * x).sum().backward();
    return weight.grad().clone();
  };
  for (const Bytes window : {0_B, 256_MiB}) {
    SessionOptions options = with_rules(rules);
    options.offload_window = window;
    options.prefetch_window = window;
    Session session(std::move(options));
    session.register_fixed(weight, FixedReason::kParameter);
    for (int i = 0; i < 8; ++i) {
      const at::Tensor right = gradient(i);
      const auto step = session.step();
      EXPECT_TRUE(gradient(i).equal(right)) << to_string(window) << " " << i << session.report();
    }
    EXPECT_GT(session.report().bytes_out, 0_B) << session.report();
    EXPECT_GT(session.report().fallbacks.at("a saved buffer was modified unseen by autograd: kept"),
              0U)
        << session.report();
  }
}

}  // namespace
}  // namespace spillway
