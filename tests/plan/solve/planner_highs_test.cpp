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

TEST(HighsTest, FindsTheBestWholeNumbers) {
  const Solution solution = solve(knapsack(), {.gap = 0});
  EXPECT_EQ(solution.status, SolveStatus::kOptimal);
  EXPECT_NEAR(solution.objective, -13, 1e-6);
  EXPECT_NEAR(solution.bound, -13, 1e-6);
  ASSERT_EQ(solution.columns.size(), 4U);
  EXPECT_NEAR(solution.columns[1], 1, 1e-6);
  EXPECT_NEAR(solution.columns[3], 1, 1e-6);
}

TEST(HighsTest, GivesTheRelaxationAsABound) {
  const Solution solution = solve(knapsack(), {.relaxed = true});
  EXPECT_EQ(solution.status, SolveStatus::kOptimal);
  EXPECT_NEAR(solution.bound, -4 - 8 - 1.25, 1e-6);
}

TEST(HighsTest, SaysWhatHasNoSolution) {
  LinearModel model = knapsack();
  model.add_row(11, kInfinity, {{0, 3}, {1, 4}, {2, 5}, {3, 6}});
  for (const bool relaxed : {false, true}) {
    const Solution solution = solve(model, {.relaxed = relaxed});
    EXPECT_EQ(solution.status, SolveStatus::kInfeasible);
    EXPECT_TRUE(solution.columns.empty());
  }
}

TEST(HighsTest, StopsAtALimitWithWhatItHasAndABound) {
  const Solution solution = solve(hard_knapsacks(), {.gap = 0, .node_limit = 1});
  EXPECT_EQ(solution.status, SolveStatus::kStopped);
  ASSERT_FALSE(solution.columns.empty());
  EXPECT_LT(solution.bound, solution.objective);
}

TEST(HighsTest, StopsWhenTimeIsUp) {
  const Solution solution =
      solve(hard_knapsacks(), {.gap = 0, .time_limit = std::chrono::milliseconds(1)});
  EXPECT_EQ(solution.status, SolveStatus::kStopped);
}

TEST(HighsTest, BeginsWithAGivenSolution) {
  const Solution found = solve(hard_knapsacks(), {.gap = 0, .node_limit = 50});
  ASSERT_FALSE(found.columns.empty());
  const Solution again =
      solve(hard_knapsacks(), {.gap = 0, .node_limit = 0, .start = found.columns});
  ASSERT_FALSE(again.columns.empty());
  EXPECT_LE(again.objective, found.objective + 1e-6);
}

TEST(HighsTest, AddsUpTermsOfOneColumn) {
  LinearModel model;
  const int column = model.add_column(0, 10, -1);
  model.add_row(-kInfinity, 6, {{column, 1}, {column, 1}, {column, 1}});
  EXPECT_NEAR(solve(model, {}).objective, -2, 1e-6);
}

TEST(HighsTest, ChangedBoundsHold) {
  LinearModel model = knapsack();
  model.set_bounds(3, 0, 0);
  EXPECT_NEAR(solve(model, {.gap = 0}).objective, -11, 1e-6);
}

TEST(HighsTest, SaysTheSameOnEveryThread) {
  const Solution here = solve(hard_knapsacks(), {.node_limit = 20});
  Solution there;
  std::thread([&there] { there = solve(hard_knapsacks(), {.node_limit = 20}); }).join();
  EXPECT_EQ(here.columns, there.columns);
  EXPECT_EQ(here.bound, there.bound);
}

TEST(HighsTest, RefusesAnInvalidModel) {
  LinearModel model;
  model.add_column(0, kInfinity, -1);
  EXPECT_THROW((void)solve(model, {}), Error);
}

}  // namespace
}  // namespace spillway
