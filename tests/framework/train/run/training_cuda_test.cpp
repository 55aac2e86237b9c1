// What of framework/train runs on a device: the same there as on the CPU.
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sin.h>
#include <gtest/gtest.h>

#include "spillway/cuda/cuda_device.hpp"
#include "support/temporary_folder.hpp"
#include "train/checkpoint/resume.hpp"
#include "train/checkpoint/tensor_digest.hpp"
#include "train/data/batch.hpp"
#include "train/model/clip.hpp"
#include "train/model/loss_scaler.hpp"

namespace spillway::app {
namespace {

using spillway::testing::TemporaryFolder;

class CudaTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_system().devices.empty()) GTEST_SKIP() << "skipped: no CUDA device";
  }

  at::Device device_{at::kCUDA, 0};
};

at::Tensor values(std::int64_t count, double shift) {
  return at::sin(at::arange(count, at::kFloat) + shift);
}

TEST_F(CudaTraining, BatchesAreTheSame) {
  const ModelConfig model;
  const auto corpus = make_corpus({}, model, CorpusUse::kTraining);
  const Batch here = read_batch(*corpus, 3, 2, model.tokens, at::kCPU);
  const Batch there = read_batch(*corpus, 3, 2, model.tokens, device_);
  EXPECT_TRUE(there.tokens.is_cuda());
  EXPECT_TRUE(at::equal(there.tokens.cpu(), here.tokens));
  EXPECT_TRUE(at::equal(there.targets.cpu(), here.targets));
}

TEST_F(CudaTraining, ClippingGivesTheSameBitsForEverySplit) {
  const auto gradients = [&] {
    return std::vector<at::Tensor>{values(100'000, 0).to(device_), values(7, 1).to(device_),
                                   values(4096, 2).to(device_)};
  };
  const std::vector<at::Tensor> whole = gradients();
  const GradientClipper all({0, 1, 2}, 3, device_);
  const at::Tensor norm = clip(whole, all.squared_norms(whole), 1);

  const std::vector<at::Tensor> parts = gradients();
  at::Tensor sum = GradientClipper({2, 0}, 3, device_).squared_norms({parts[2], parts[0]});
  sum += GradientClipper({1}, 3, device_).squared_norms({parts[1]});
  EXPECT_TRUE(at::equal(clip(parts, sum, 1), norm));
  for (std::size_t i = 0; i < parts.size(); ++i) EXPECT_TRUE(at::equal(parts[i], whole[i]));
}

TEST_F(CudaTraining, LossScalingBacksOff) {
  LossScaler scaler(device_, {1024, 2, 3, 0.5});
  scaler.unscale({at::full({4}, std::numeric_limits<float>::infinity()).to(device_)});
  EXPECT_FALSE(scaler.finite());
  scaler.update();
  EXPECT_EQ(scaler.state(), (LossScalerState{512, 0}));
  const std::vector<at::Tensor> gradients = {at::full({4}, 512.0F).to(device_)};
  scaler.unscale(gradients);
  EXPECT_EQ(gradients[0][0].item<float>(), 1);
  EXPECT_TRUE(scaler.finite());
}

TEST_F(CudaTraining, CheckpointsAndDigestsDoNotDependOnTheDevice) {
  const TemporaryFolder folder;
  const auto optimizer_on = [](at::Device device, double shift) {
    return Optimizer({{"w", values(12, shift).view({3, 4}).to(device).requires_grad_(true)}}, {});
  };
  Optimizer there = optimizer_on(device_, 0);
  there.zero_gradients();
  there.gradients()[0].fill_(0.25);
  there.step(0.1);
  const CheckpointWriter writer(folder.path(), 1);
  writer.begin();
  save(writer, 0, there);
  writer.complete(1, {});

  for (const at::Device device : {at::Device(at::kCPU), device_}) {
    Optimizer restored = optimizer_on(device, 5);
    restore(Checkpoint(writer.path()), restored);
    EXPECT_EQ(tensor_digest(restored.parameters()[0]).digest,
              tensor_digest(there.parameters()[0]).digest);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(at::equal(restored.state()[i].tensor.cpu(), there.state()[i].tensor.cpu()));
    }
  }
}

}  // namespace
}  // namespace spillway::app
