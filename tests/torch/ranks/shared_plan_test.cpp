#include "torch/ranks/shared_plan.hpp"

#include <exception>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "torch/support/thread_ranks.hpp"

namespace spillway::shared_plan_test {
namespace {

using testing::ThreadRanks;

constexpr int kRanks = 3;

std::shared_ptr<const Plan> plan_named(const std::string& structure) {
  Plan plan;
  plan.structure = structure;
  return std::make_shared<const Plan>(std::move(plan));
}

template <typename Error>
std::exception_ptr error_of(const std::string& operation, const std::string& detail) {
  return std::make_exception_ptr(Error(operation, detail));
}

TEST(SharedPlan, IsSentToThoseThatHaveAnotherOne) {
  ThreadRanks::run(kRanks, [](const std::shared_ptr<ShardGroup>& group) {
    SharedPlan plan;
    plan.adopt(plan_named(group->rank() == 2 ? "old" : "new"));
    const SharedPlan::Answer answer =
        plan.share(*group, {true, Bytes(10 * static_cast<std::uint64_t>(group->rank()))});
    EXPECT_FALSE(answer.problem.has_value());
    ASSERT_EQ(answer.plan.has_value(), group->rank() == 2);
    if (answer.plan) {
      EXPECT_EQ(plan_from_json(*answer.plan, "it").structure, "new");
    }
    // Of those that use the first rank's plan.
    EXPECT_EQ(answer.excess, Bytes(10));
  });
}

TEST(SharedPlan, IsNotSentWhereAllHaveItOrTheFirstRankHasNone) {
  ThreadRanks::run(kRanks, [](const std::shared_ptr<ShardGroup>& group) {
    SharedPlan plan;
    plan.adopt(plan_named("new"));
    EXPECT_EQ(plan.share(*group, {true, Bytes(0)}).plan, std::nullopt);
    EXPECT_EQ(plan.share(*group, {group->rank() != 0, Bytes(0)}).plan, std::nullopt);
    plan.adopt(nullptr);
    EXPECT_FALSE(plan.has_plan());
    EXPECT_EQ(plan.share(*group, {}).plan, std::nullopt);
  });
}

TEST(SharedPlan, ComesWithTheErrorOfTheFirstRank) {
  ThreadRanks::run(kRanks, [](const std::shared_ptr<ShardGroup>& group) {
    const SharedPlan plan;
    SharedPlan::Mine mine;
    if (group->rank() == 0) mine.error = error_of<PlanInfeasible>("plan", "no plan fits 1 B");
    const auto first = plan.share(*group, mine).problem;
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(first->text, "[plan] no plan fits 1 B");
    EXPECT_THROW(first->raise(), PlanInfeasible);
    if (group->rank() == 0) mine.error = error_of<IoError>("read", "no such file");
    const auto second = plan.share(*group, mine).problem;
    ASSERT_TRUE(second.has_value());
    try {
      second->raise();
    } catch (const InvalidArgument& error) {
      EXPECT_STREQ(error.what(),
                   "[read] the first rank of the shard group could not plan: no such file");
    }
  });
}

// Its own text may be longer than the one that comes.
TEST(SharedPlan, TakesTheFirstRanksErrorWhereItHasOneItself) {
  ThreadRanks::run(kRanks, [](const std::shared_ptr<ShardGroup>& group) {
    const SharedPlan plan;
    const std::string text(group->rank() == 0 ? 3 : 4000, 'x');
    const SharedPlan::Mine mine{.error = error_of<PlanInfeasible>("plan", text)};
    const auto problem = plan.share(*group, mine).problem;
    ASSERT_TRUE(problem.has_value());
    EXPECT_EQ(problem->text, "[plan] xxx");
  });
}

TEST(SharedPlan, IgnoresErrorsOfOtherRanks) {
  ThreadRanks::run(kRanks, [](const std::shared_ptr<ShardGroup>& group) {
    const SharedPlan plan;
    SharedPlan::Mine mine;
    if (group->rank() != 0) mine.error = error_of<PlanInfeasible>("plan", "no plan fits 1 B");
    EXPECT_FALSE(plan.share(*group, mine).problem.has_value());
  });
}

}  // namespace
}  // namespace spillway::shared_plan_test
