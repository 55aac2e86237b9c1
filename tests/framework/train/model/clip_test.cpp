#include "train/model/clip.hpp"

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sin.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"

namespace spillway::app {
namespace {

using spillway::testing::error_text;

std::vector<at::Tensor> gradients() {
  std::vector<at::Tensor> made;
  for (int i = 0; i < 7; ++i)
    made.push_back(at::sin(at::arange(100 + 37 * i, at::kFloat) + i) * (i + 1));
  return made;
}

/// The gradients at these positions, as copies.
std::vector<at::Tensor> pick(const std::vector<std::int64_t>& positions) {
  std::vector<at::Tensor> picked;
  for (const std::int64_t position : positions) {
    picked.push_back(gradients()[static_cast<std::size_t>(position)]);
  }
  return picked;
}

TEST(Clipping, GivesTheSameBitsForEverySplit) {
  std::vector<at::Tensor> whole = gradients();
  const GradientClipper clipper({0, 1, 2, 3, 4, 5, 6}, 7, at::kCPU);
  const at::Tensor norm = clip(whole, clipper.squared_norms(whole), 1);
  for (const std::vector<std::vector<std::int64_t>>& split :
       std::vector<std::vector<std::vector<std::int64_t>>>{
           {{0, 1, 2}, {3, 4, 5, 6}}, {{6, 0}, {3}, {5, 1, 2, 4}}, {{}, {6, 5, 4, 3, 2, 1, 0}}}) {
    at::Tensor sum = at::full({7}, 0, at::kDouble);
    for (const auto& positions : split) {
      sum += GradientClipper(positions, 7, at::kCPU).squared_norms(pick(positions));
    }
    for (const auto& positions : split) {
      const std::vector<at::Tensor> part = pick(positions);
      EXPECT_TRUE(at::equal(clip(part, sum, 1), norm));
      for (std::size_t i = 0; i < positions.size(); ++i) {
        EXPECT_TRUE(at::equal(part[i], whole[static_cast<std::size_t>(positions[i])]));
      }
    }
  }
}

TEST(Clipping, ScalesTheNormToTheLimit) {
  const std::vector<at::Tensor> two = {at::full({1}, 3.0F), at::full({1}, 4.0F)};
  const GradientClipper clipper({0, 1}, 2, at::kCPU);
  EXPECT_EQ(clip(two, clipper.squared_norms(two), 2.5).item<double>(), 5);
  EXPECT_EQ(two[0].item<float>(), 1.5F);
  EXPECT_EQ(two[1].item<float>(), 2.0F);
}

TEST(Clipping, LeavesSmallGradientsAsTheyAre) {
  const std::vector<at::Tensor> found = gradients();
  const GradientClipper clipper({0, 1, 2, 3, 4, 5, 6}, 7, at::kCPU);
  const at::Tensor norms = clipper.squared_norms(found);
  (void)clip(found, norms, 1e6);
  (void)clip(found, norms, 0);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(at::equal(found[i], gradients()[i]));
}

TEST(Clipping, LeavesZerosAsTheyAre) {
  const std::vector<at::Tensor> zeros = {at::full({4}, 0.0F)};
  const GradientClipper clipper({0}, 1, at::kCPU);
  EXPECT_EQ(clip(zeros, clipper.squared_norms(zeros), 1).item<double>(), 0);
  EXPECT_EQ(zeros[0].sum().item<float>(), 0);
}

TEST(Clipping, CountsWhatIsNotDefinedAsZero) {
  const GradientClipper clipper({2, 0}, 3, at::kCPU);
  const at::Tensor norms = clipper.squared_norms({at::Tensor(), at::full({1}, 2.0F)});
  EXPECT_TRUE(at::equal(
      norms, at::full({3}, 0, at::kDouble).index_fill(0, at::full({1}, 0, at::kLong), 4)));
}

TEST(Clipping, DoesNotOverflowWhereFloatWould) {
  const std::vector<at::Tensor> huge = {at::full({4}, 1e30F)};
  const GradientClipper clipper({0}, 1, at::kCPU);
  EXPECT_NEAR(clip(huge, clipper.squared_norms(huge), 1).item<double>(), 2e30, 1e24);
  EXPECT_NEAR(huge[0][0].item<double>(), 0.5, 1e-6);
}

TEST(Clipping, KeepsWhatIsNotFiniteVisible) {
  const std::vector<at::Tensor> broken = {at::full({2}, std::numeric_limits<float>::infinity()),
                                          at::full({1}, 1.0F)};
  const GradientClipper clipper({0, 1}, 2, at::kCPU);
  EXPECT_FALSE(std::isfinite(clip(broken, clipper.squared_norms(broken), 1).item<double>()));
  EXPECT_FALSE(std::isfinite(broken[0][0].item<float>()));
}

TEST(Clipping, RefusesPositionsThatCannotBe) {
  EXPECT_EQ(error_text<InvalidArgument>([] {
              GradientClipper({0, 3}, 3, at::kCPU);
            }),
            "[clip] positions below 3 wanted, each once; found 3");
  EXPECT_EQ(error_text<InvalidArgument>([] {
              GradientClipper({1, 1}, 3, at::kCPU);
            }),
            "[clip] positions below 3 wanted, each once; found 1");
  const GradientClipper clipper({0, 1}, 2, at::kCPU);
  EXPECT_EQ(error_text<InvalidArgument>([&] { (void)clipper.squared_norms({}); }),
            "[clip] 2 gradients wanted, found 0");
}

}  // namespace
}  // namespace spillway::app
