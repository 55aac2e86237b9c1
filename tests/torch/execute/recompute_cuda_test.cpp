#include <ATen/autocast_mode.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "spillway/cuda/cuda_device.hpp"
#include "spillway/torch/session.hpp"
#include "torch/support/training.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::difference;
using testing::TinyModel;
using testing::TinyOptions;

constexpr const char* kEverything = "[[rule]]\naction = \"recompute\"\n";
constexpr const char* kLayers = "[internevo]\ncheckpoint = true\n";
constexpr const char* kSelective =
    "[internevo]\ncheckpoint = true\nselective_checkpoint = true\n"
    "selective_checkpoint_offload = true\n";
constexpr const char* kMixed =
    "[[rule]]\nlayers = \"0\"\naction = \"offload\"\n"
    "[[rule]]\nproducer = [\"*norm*\", \"*gelu*\", \"*dropout*\", \"aten::mul*\"]\n"
    "action = \"recompute\"\n"
    "[[rule]]\nproducer = \"*attention*\"\naction = \"offload\"\n";

class CudaRecompute : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_system().devices.empty()) GTEST_SKIP() << "skipped: no CUDA device";
    shape_.device = at::Device(at::kCUDA, 0);
    shape_.hidden = 512;
    shape_.vocabulary = 1000;
    shape_.dtype = at::kBFloat16;
  }

  static SessionOptions with_rules(const std::string& rules) {
    SessionOptions options;
    options.rules = parse_rules(rules, "test.toml");
    options.host = 2_GiB;
    options.offload_window = 8_MiB;
    options.prefetch_window = 8_MiB;
    return options;
  }

  static at::Tensor single_step(TinyModel& model, Step* /*step*/, int i) {
    at::Tensor loss = model.loss(model.tokens(4, 512, i));
    loss.backward();
    return loss;
  }

  static void expect_recomputed(const Session& session) {
    const SessionReport report = session.report();
    EXPECT_GT(report.repeated_calls, 0U) << report;
    EXPECT_TRUE(report.demoted.empty()) << report;
    EXPECT_TRUE(report.fallbacks.empty()) << report;
  }

  TinyOptions shape_;
};

TEST_F(CudaRecompute, GivesTheSameBitsFromTheFirstStepOn) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const char* const rules : {kEverything, kLayers, kSelective, kMixed}) {
      shape_.dtype = dtype;
      Session session(with_rules(rules));
      EXPECT_EQ(difference(shape_, session, 5, single_step), 0) << rules;
      expect_recomputed(session);
    }
  }
}

TEST_F(CudaRecompute, KeepsSeveralPassesInFlight) {
  for (const char* const rules : {kLayers, kMixed}) {
    Session session(with_rules(rules));
    EXPECT_EQ(difference(shape_, session, 4,
                         [](TinyModel& model, Step* step, int i) {
                           std::vector<at::Tensor> losses;
                           for (int micro = 0; micro < 3; ++micro) {
                             if (step != nullptr) step->pass(0, micro);
                             losses.push_back(model.loss(model.tokens(2, 256, 10 * i + micro)));
                           }
                           at::Tensor total = at::zeros({}, losses[0].options());
                           for (const at::Tensor& loss : losses) {
                             loss.backward();
                             total = total + loss.detach();
                           }
                           return total;
                         }),
              0);
    expect_recomputed(session);
  }
}

TEST_F(CudaRecompute, GivesTheSameBitsUnderAutocast) {
  shape_.dtype = at::kFloat;
  shape_.tied = true;
  for (const char* const rules : {kEverything, kLayers, kMixed}) {
    Session session(with_rules(rules));
    EXPECT_EQ(difference(shape_, session, 4,
                         [](TinyModel& model, Step*, int i) {
                           const at::Tensor tokens = model.tokens(2, 256, i);
                           at::autocast::set_autocast_enabled(at::kCUDA, true);
                           at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
                           at::Tensor loss = model.loss(tokens);
                           at::autocast::set_autocast_enabled(at::kCUDA, false);
                           at::autocast::clear_cache();
                           loss.backward();
                           return loss;
                         }),
              0);
    expect_recomputed(session);
  }
}

TEST_F(CudaRecompute, FollowsAStreamOfTheUser) {
  Session session(with_rules(kMixed));
  EXPECT_EQ(difference(shape_, session, 4,
                       [](TinyModel& model, Step* step, int i) {
                         const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
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
  expect_recomputed(session);
}

TEST_F(CudaRecompute, NeverBlocksTheHost) {
  Session session(with_rules(kMixed));
  EXPECT_EQ(difference(shape_, session, 5,
                       [](TinyModel& model, Step*, int i) {
                         const at::Tensor tokens = model.tokens(4, 512, i);
                         // Recording and verification steps may block; torch throws where one of
                         // its own operators would.
                         const auto before = c10::cuda::warning_state().get_sync_debug_mode();
                         if (i >= 2) {
                           c10::cuda::warning_state().set_sync_debug_mode(
                               c10::cuda::SyncDebugMode::L_ERROR);
                         }
                         at::Tensor loss = model.loss(tokens);
                         loss.backward();
                         c10::cuda::warning_state().set_sync_debug_mode(before);
                         return loss;
                       }),
            0);
  expect_recomputed(session);
}

TEST_F(CudaRecompute, CatchesAKernelThatTheDispatcherDoesNotSee) {
  Session session(with_rules(kEverything));
  const testing::Deterministic deterministic;
  const auto run = [&](Session* active) {
    std::vector<at::Tensor> gradients;
    at::manual_seed(3);
    at::Tensor weight = at::randn({512, 512}, at::Device(at::kCUDA, 0)).set_requires_grad(true);
    if (active != nullptr) active->register_fixed(weight, FixedReason::kParameter);
    for (int i = 0; i < 4; ++i) {
      weight.mutable_grad() = at::Tensor();
      {
        std::optional<Step> step;
        if (active != nullptr) step.emplace(active->step());
        at::Tensor loss;
        {
          const at::Tensor x = weight * 2;
          EXPECT_EQ(cudaMemsetAsync(x.data_ptr(), 0, 4096, c10::cuda::getCurrentCUDAStream()),
                    cudaSuccess);
          loss = (x * x).sum() + x.sin().sum();
        }
        loss.backward();
      }
      gradients.push_back(weight.grad().clone());
    }
    return gradients;
  };
  const std::vector<at::Tensor> without = run(nullptr);
  EXPECT_EQ(testing::count_different(without, run(&session)), 0);
  EXPECT_EQ(session.report().demoted.size(), 1U) << session.report();
}

}  // namespace
}  // namespace spillway
