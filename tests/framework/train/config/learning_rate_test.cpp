#include "train/config/learning_rate.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace spillway::app {
namespace {

OptimizerConfig rates(std::int64_t warm_up, const char* schedule) {
  OptimizerConfig config;
  config.learning_rate = 1;
  config.min_learning_rate = 0.25;
  config.warm_up = warm_up;
  config.schedule = schedule;
  return config;
}

std::vector<double> of_run(const OptimizerConfig& config, std::int64_t steps) {
  std::vector<double> found;
  for (std::int64_t step = 0; step < steps; ++step) {
    found.push_back(learning_rate(config, steps, step));
  }
  return found;
}

TEST(LearningRate, RisesInEqualPartsAndStaysConstant) {
  EXPECT_EQ(of_run(rates(4, "constant"), 6), (std::vector<double>{0.25, 0.5, 0.75, 1, 1, 1}));
}

TEST(LearningRate, FallsByACosineFromTheEndOfTheWarmUpToTheMinimum) {
  const std::vector<double> found = of_run(rates(2, "cosine"), 6);
  EXPECT_EQ(found[0], 0.5);
  EXPECT_EQ(found[1], 1);
  EXPECT_DOUBLE_EQ(found[2], 0.25 + 0.75 * (1 + std::sqrt(0.5)) / 2);
  EXPECT_DOUBLE_EQ(found[3], 0.625);
  EXPECT_DOUBLE_EQ(found[4], 0.25 + 0.75 * (1 - std::sqrt(0.5)) / 2);
  EXPECT_EQ(found[5], 0.25);
}

TEST(LearningRate, BeginsAtTheFullRateWithoutAWarmUp) {
  const std::vector<double> found = of_run(rates(0, "cosine"), 3);
  EXPECT_EQ(found[0], 1);
  EXPECT_DOUBLE_EQ(found[1], 0.625);
  EXPECT_EQ(found[2], 0.25);
}

TEST(LearningRate, OnlyRisesWhereTheRunIsNotLongerThanTheWarmUp) {
  EXPECT_EQ(of_run(rates(4, "cosine"), 4), (std::vector<double>{0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(of_run(rates(8, "cosine"), 2), (std::vector<double>{0.125, 0.25}));
}

TEST(LearningRate, IsTheMinimumBeyondTheEnd) {
  EXPECT_EQ(learning_rate(rates(0, "cosine"), 1, 0), 0.25);
  EXPECT_EQ(learning_rate(rates(2, "cosine"), 6, 100), 0.25);
}

}  // namespace
}  // namespace spillway::app
