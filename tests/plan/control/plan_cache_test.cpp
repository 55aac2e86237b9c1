#include "plan/control/plan_cache.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

PassSchedule micro_batches(int count) {
  PassSchedule schedule;
  for (int i = 0; i < count; ++i) {
    schedule.push_back({0, i, false});
    schedule.push_back({0, i, true});
  }
  return schedule;
}

CachedPlan cached(int count, const std::string& problem = "") {
  CachedPlan plan;
  plan.schedule = micro_batches(count);
  plan.plan = std::make_shared<const Plan>();
  plan.problem.text = problem;
  return plan;
}

TEST(PlanCache, GivesAPlanForItsScheduleOnce) {
  PlanCache cache;
  EXPECT_FALSE(cache.take(micro_batches(1)).has_value());
  cache.put(cached(1));
  EXPECT_FALSE(cache.take(micro_batches(2)).has_value());
  const std::optional<CachedPlan> plan = cache.take(micro_batches(1));
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->schedule, micro_batches(1));
  EXPECT_FALSE(cache.take(micro_batches(1)).has_value());
}

TEST(PlanCache, KeepsTheLastOneOfASchedule) {
  PlanCache cache;
  cache.put(cached(1, "the first"));
  cache.put(cached(1, "the second"));
  EXPECT_EQ(cache.take(micro_batches(1))->problem.text, "the second");
  EXPECT_FALSE(cache.take(micro_batches(1)).has_value());
}

TEST(PlanCache, DropsTheOldest) {
  PlanCache cache;
  for (const int count : {1, 2, 3, 4}) cache.put(cached(count));
  cache.put(cached(2));
  EXPECT_TRUE(cache.take(micro_batches(1)).has_value()) << "2 took no other's place";
  cache.put(cached(1));
  cache.put(cached(5));
  EXPECT_FALSE(cache.take(micro_batches(3)).has_value());
  for (const int count : {1, 2, 4, 5}) EXPECT_TRUE(cache.take(micro_batches(count)).has_value());
  cache.put(cached(1));
  cache.clear();
  EXPECT_FALSE(cache.take(micro_batches(1)).has_value());
}

}  // namespace
}  // namespace spillway
