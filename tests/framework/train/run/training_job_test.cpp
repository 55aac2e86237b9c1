#include <algorithm>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "torch/support/training.hpp"
#include "torch/support/unseen_write.hpp"
#include "train/run/job.hpp"

namespace spillway::app {
namespace {

using testing::error_text;
using testing::UnseenWrite;

TrainConfig tiny() {
  return parse_config(
      "", "test",
      {"model.layers=4", "model.hidden=32", "model.ffn=48", "model.tokens=24", "train.steps=6",
       "train.micro_batches=3", "train.micro_batch_size=2", "optimizer.warm_up=1"});
}

std::vector<at::Tensor> weights_of(const TrainingJob& job) {
  std::vector<at::Tensor> weights;
  for (const NamedTensor& each : job.parameters()) weights.push_back(each.tensor.detach().clone());
  return weights;
}

bool equal(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](const at::Tensor& a, const at::Tensor& b) { return a.equal(b); });
}

TEST(TrainingJob, UpdatesNothingWhenGradientsAreWrong) {
  const testing::Deterministic deterministic;
  const auto world = make_single_world();
  constexpr int kSteps = 4;
  TrainingJob baseline(tiny(), *world, at::kCPU);
  for (int i = 0; i < kSteps; ++i) (void)baseline.step(nullptr);

  SessionOptions options = testing::offload_everything();
  options.offload_window = Bytes(32 << 10);
  options.verify_every = 1;
  Session session(std::move(options));
  TrainingJob job(tiny(), *world, at::kCPU);
  session.register_model(job.model());
  for (int i = 0; i < kSteps; ++i) {
    // In the recording step and in later ones. What was written is kept from then on, so it is the
    // gate of another layer each time.
    if (i != 3) {
      const std::vector<at::Tensor> before = weights_of(job);
      const UnseenWrite write("aten::silu", i);
      EXPECT_THAT(error_text<VerificationError>([&] { (void)job.step(&session); }),
                  ::testing::HasSubstr("the gradients of this step are wrong"))
          << i << session.report();
      EXPECT_TRUE(write.done());
      EXPECT_TRUE(equal(weights_of(job), before)) << i;
      EXPECT_EQ(job.steps_done(), i);
    }
    (void)job.step(&session);
  }
  EXPECT_TRUE(equal(weights_of(job), weights_of(baseline)));
}

}  // namespace
}  // namespace spillway::app
