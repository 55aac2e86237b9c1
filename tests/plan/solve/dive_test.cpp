#include "plan/solve/dive.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace spillway {
namespace {

constexpr double kNoLimit = LinearModel::kUnbounded;

std::vector<double> dive_into(const LinearModel& model) {
  Relaxation relaxation(model);
  const Solution relaxed = relaxation.solve();
  return dive(model, relaxation, relaxed);
}

TEST(Dive, FindsWholeNumbersNearTheBest) {
  double found_in_all = 0;
  double bound_of_all = 0;
  for (unsigned seed = 1; seed < 40; ++seed) {
    unsigned state = seed;
    const auto random = [&state] {
      state = state * 1664525U + 1013904223U;
      return static_cast<double>(1 + (state >> 16U) % 100);
    };
    LinearModel model;
    std::vector<double> worth;
    std::vector<std::vector<LinearModel::Term>> rows(3);
    for (int i = 0; i < 20; ++i) {
      worth.push_back(random());
      const int column = model.add_binary(-worth.back());
      for (auto& row : rows) row.push_back({column, random()});
    }
    for (const auto& row : rows) model.add_row(-kNoLimit, 400, row);
    const std::vector<double> found = dive_into(model);
    ASSERT_EQ(found.size(), worth.size());
    double objective = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], std::round(found[i]), 1e-6);
      objective -= worth[i] * found[i];
    }
    for (const auto& row : rows) {
      double sum = 0;
      for (const auto& term : row)
        sum += term.factor * found[static_cast<std::size_t>(term.column)];
      EXPECT_LE(sum, 400 + 1e-6);
    }
    const double bound = Relaxation(model).solve().bound;
    EXPECT_GE(objective, bound - 1e-6) << "seed " << seed;
    EXPECT_LT(objective, 0.75 * bound) << "seed " << seed;
    found_in_all += objective;
    bound_of_all += bound;
  }
  EXPECT_LT(found_in_all, 0.88 * bound_of_all);
}

TEST(Dive, TakesTheOtherValueWhereTheNearestOneCostsMore) {
  LinearModel model;
  // 0.6 of x is enough; whole, it would need 100 of y, and 0 of it only one.
  const int x = model.add_binary(-1);
  const int y = model.add_column(0, kNoLimit, 1);
  model.add_row(-kNoLimit, 0.6, {{x, 1}, {y, -0.004}});
  EXPECT_NEAR(dive_into(model)[0], 0, 1e-9);
}

TEST(Dive, ReleasesWhatItHeldWhereNothingElseHelps) {
  LinearModel model;
  const int x = model.add_binary(1);
  const int y = model.add_binary();
  const int z = model.add_binary();
  model.add_row(1.5, 1.5, {{x, 0.5}, {y, 1}, {z, 1}});
  const std::vector<double> found = dive_into(model);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_NEAR(found[0], 1, 1e-9);
  EXPECT_NEAR(found[1] + found[2], 1, 1e-9);
}

TEST(Dive, SaysThatThereAreNoWholeNumbers) {
  LinearModel model;
  const int x = model.add_binary();
  const int y = model.add_binary();
  model.add_row(1.5, 1.5, {{x, 1}, {y, 1}});
  EXPECT_TRUE(dive_into(model).empty());
}

TEST(Dive, DecidesManyTogetherAndTheRestOneByOne) {
  for (const double most : {1.0, 1.2}) {
    LinearModel model;
    for (int i = 0; i < 200; ++i) {
      const int column = model.add_binary(-1);
      model.add_row(-kNoLimit, most, {{column, 2}});
    }
    const std::vector<double> found = dive_into(model);
    ASSERT_EQ(found.size(), 200U);
    for (const double each : found) EXPECT_NEAR(each, 0, 1e-9);
  }
}

}  // namespace
}  // namespace spillway
