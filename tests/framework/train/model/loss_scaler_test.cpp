#include "train/model/loss_scaler.hpp"

#include <limits>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

namespace spillway::app {
namespace {

constexpr LossScale kSmall{1024, 2, 3, 0.5};

/// A step whose only gradient has that value, scaled.
void step(LossScaler& scaler, float value) {
  const std::vector<at::Tensor> gradients = {at::full({4}, value)};
  scaler.unscale(gradients);
  scaler.update();
}

TEST(LossScaler, ScalesTheLossAndDividesTheGradients) {
  LossScaler scaler(at::kCPU, kSmall);
  const at::Tensor loss = at::full({}, 0.5F);
  EXPECT_EQ(scaler.scale(loss).item<float>(), 512);
  EXPECT_EQ(scaler.scale(loss).dim(), 0);
  const std::vector<at::Tensor> gradients = {at::full({2}, 512.0F), at::Tensor(),
                                             at::full({1}, 1.0F)};
  scaler.unscale(gradients);
  EXPECT_EQ(gradients[0][1].item<float>(), 0.5F);
  EXPECT_EQ(gradients[2].item<float>(), 1.0F / 1024);
  EXPECT_TRUE(scaler.finite());
}

TEST(LossScaler, BacksOffAfterAStepThatIsNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    LossScaler scaler(at::kCPU, kSmall);
    scaler.unscale({at::full({4}, bad)});
    EXPECT_FALSE(scaler.finite());
    scaler.update();
    EXPECT_TRUE(scaler.finite());
    EXPECT_EQ(scaler.state(), (LossScalerState{512, 0}));
  }
}

TEST(LossScaler, RemembersWhatIsNotFiniteOverSeveralCalls) {
  LossScaler scaler(at::kCPU, kSmall);
  scaler.unscale({at::full({4}, std::numeric_limits<float>::infinity())});
  scaler.unscale({at::full({4}, 1.0F)});
  EXPECT_FALSE(scaler.finite());
}

TEST(LossScaler, GrowsAfterEnoughFiniteStepsInARow) {
  LossScaler scaler(at::kCPU, kSmall);
  step(scaler, 1);
  step(scaler, 1);
  EXPECT_EQ(scaler.state(), (LossScalerState{1024, 2}));
  step(scaler, 1);
  EXPECT_EQ(scaler.state(), (LossScalerState{2048, 0}));
}

TEST(LossScaler, TakesTheFlagOfOtherRanks) {
  LossScaler scaler(at::kCPU, kSmall);
  scaler.unscale({at::full({4}, 1.0F)});
  scaler.not_finite().fill_(1);  // As a maximum over all ranks does.
  EXPECT_FALSE(scaler.finite());
  scaler.update();
  EXPECT_EQ(scaler.state().scale, 512);
}

TEST(LossScaler, GoesOnFromASavedState) {
  LossScaler unbroken(at::kCPU, kSmall);
  step(unbroken, 1);
  step(unbroken, 1);
  LossScaler resumed(at::kCPU, kSmall);
  resumed.set_state(unbroken.state());
  step(resumed, 1);
  EXPECT_EQ(resumed.state(), (LossScalerState{2048, 0}));
}

TEST(LossScaler, HasNothingToDoWithoutGradients) {
  LossScaler scaler(at::kCPU, kSmall);
  scaler.unscale({});
  EXPECT_TRUE(scaler.finite());
}

}  // namespace
}  // namespace spillway::app
