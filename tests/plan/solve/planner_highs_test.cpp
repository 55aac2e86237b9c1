#include <thread>

#include <gtest/gtest.h>

#include "plan/highs/highs.hpp"
#include "spillway/core/error.hpp"

namespace spillway {
namespace {

constexpr double kInfinity = LinearModel::kUnbounded;

/// The most value of things that weigh 3, 4, 5, 6 and are worth 4, 5, 6, 8 below a weight of 10.
LinearModel knapsack() {
  LinearModel model;
  const std::vector<double> weights = {3, 4, 5, 6};
  const std::vector<double> worth = {4, 5, 6, 8};
  std::vector<LinearModel::Term> terms;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    terms.push_back({model.add_binary(-worth[i]), weights[i]});
  }
  model.add_row(-kInfinity, 10, terms);
  return model;
}

/// Many things of almost equal worth per weight, for which the gap takes long to close.
LinearModel hard_knapsacks() {
  LinearModel model;
  std::vector<std::vector<LinearModel::Term>> rows(12);
  unsigned state = 1;
  for (int i = 0; i < 120; ++i) {
    double sum = 0;
    std::vector<double> weights;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      state = state * 1664525U + 1013904223U;
      weights.push_back(100 + (state >> 16U) % 900);
      sum += weights.back();
    }
    const int column = model.add_binary(-sum / 12 - 50);
    for (std::size_t row = 0; row < rows.size(); ++row) rows[row].push_back({column, weights[row]});
  }
  for (const auto& terms : rows) model.add_row(-kInfinity, 30000, terms);
  return model;
}

TEST(RelaxationTest, IsABound) {
  const Solution solution = Relaxation(knapsack()).solve();
  EXPECT_EQ(solution.status, SolveStatus::kOptimal);
  EXPECT_NEAR(solution.bound, -4 - 8 - 1.25, 1e-6);
  EXPECT_NEAR(solution.objective, solution.bound, 1e-9);
  ASSERT_EQ(solution.columns.size(), 4U);
  EXPECT_NEAR(solution.columns[1], 0.25, 1e-6);
}

TEST(RelaxationTest, SaysWhatHasNoSolution) {
  LinearModel model = knapsack();
  model.add_row(11, kInfinity, {{0, 3}, {1, 4}, {2, 5}, {3, 6}});
  const Solution solution = Relaxation(model).solve();
  EXPECT_EQ(solution.status, SolveStatus::kInfeasible);
  EXPECT_TRUE(solution.columns.empty());
}

TEST(RelaxationTest, AddsUpTermsOfOneColumn) {
  LinearModel model;
  const int column = model.add_column(0, 10, -1);
  model.add_row(-kInfinity, 6, {{column, 1}, {column, 1}, {column, 1}});
  EXPECT_NEAR(Relaxation(model).solve().objective, -2, 1e-6);
}

TEST(RelaxationTest, SaysTheSameOnEveryThread) {
  const auto solve_twice = [] {
    Relaxation relaxation(hard_knapsacks());
    (void)relaxation.solve();
    relaxation.set_bounds(7, 0, 0);
    return relaxation.solve();
  };
  const Solution here = solve_twice();
  Solution there;
  std::thread([&] { there = solve_twice(); }).join();
  EXPECT_EQ(here.columns, there.columns);
  EXPECT_EQ(here.bound, there.bound);
}

TEST(RelaxationTest, IsSolvedAgainWithOtherBounds) {
  LinearModel model = hard_knapsacks();
  Relaxation relaxation(model);
  EXPECT_EQ(relaxation.solve().bound, Relaxation(model).solve().bound);
  for (const int column : {7, 30, 31}) {
    relaxation.set_bounds(column, 1, 1);
    model.set_bounds(column, 1, 1);
    EXPECT_NEAR(relaxation.solve().bound, Relaxation(model).solve().bound, 1e-6);
  }
  for (int column = 0; column < 120; ++column) relaxation.set_bounds(column, 1, 1);
  EXPECT_EQ(relaxation.solve().status, SolveStatus::kInfeasible);
  for (int column = 0; column < 120; ++column) relaxation.set_bounds(column, 0, 0);
  EXPECT_NEAR(relaxation.solve().bound, 0, 1e-9);
}

TEST(RelaxationTest, BeginsWithTheBasisOfALikeModel) {
  Relaxation first(hard_knapsacks());
  (void)first.solve();
  LinearModel other = hard_knapsacks();
  other.set_bounds(3, 0, 0);
  const double wanted = Relaxation(other).solve().bound;
  EXPECT_NEAR(Relaxation(other, first.basis()).solve().bound, wanted, 1e-6);
  EXPECT_NEAR(Relaxation(knapsack(), first.basis()).solve().bound, -13.25, 1e-6)
      << "of another size";
}

TEST(RelaxationTest, RefusesAnInvalidModel) {
  LinearModel model;
  model.add_column(0, kInfinity, -1);
  EXPECT_THROW((void)Relaxation(model).solve(), Error);
}

}  // namespace
}  // namespace spillway
