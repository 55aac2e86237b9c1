#include "plan/simulate/simulation_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/graph_builder.hpp"
#include "plan/support/plan_queries.hpp"
#include "plan/support/random_step.hpp"
#include "plan/support/synthetic_timeline.hpp"
#include "support/random_cases.hpp"

namespace spillway {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Simulation, IsConsistentForRandomStepsAndPlans) {
  const auto cases = static_cast<unsigned>(testing::cases_of(2500));
  for (unsigned seed = 0; seed < cases; ++seed) {
    std::mt19937_64 random(seed);
    const Profile profile = testing::random_step_profile(random);
    Plan plan = testing::random_plan(profile, random);
    SimulateOptions options;
    options.trace = true;
    options.schedule = testing::random_schedule(profile, random);
    options.windows.offload_window = Bytes(random() % 10'000'000);
    options.windows.prefetch_window = Bytes(random() % 10'000'000);
    if (random() % 8 == 0) options.windows.host = Bytes(random() % 50'000'000);
    if (random() % 3 > 0) {
      set_residency(profile, Bytes(random() % 200'000'000), plan, options.schedule);
    }
    const Simulation simulation = simulate(profile, plan, options);
    ASSERT_THAT(problems_of(simulation, profile, plan, options.schedule), IsEmpty())
        << "seed " << seed;
    for (const MemoryPoint& point : simulation.memory) ASSERT_GE(point.bytes, 0) << "seed " << seed;
  }
}

/// What a check says about a simulation of one pass that was changed by hand.
class SpoiledSimulation : public ::testing::Test {
 protected:
  SpoiledSimulation() {
    testing::GraphBuilder graph;
    for (int i = 0; i < 3; ++i) graph.save(graph.call({.makes = {1000}, .ns = 100}), "offloaded");
    profile_ = graph.profile();
    profile_.link = {1e9, 1e9, 1e9, 1e9};
    testing::add_timelines(profile_);
    plan_ = testing::plan_by(profile_, "[[rule]]\naction = \"offload\"\n");
    set_residency(profile_, Bytes(2500), plan_);
    simulation_ = simulate(profile_, plan_, {.schedule = {}, .trace = true, .windows = {}});
  }

  [[nodiscard]] std::vector<std::string> problems() const {
    return problems_of(simulation_, profile_, plan_);
  }

  Profile profile_;
  Plan plan_;
  Simulation simulation_;
};

TEST_F(SpoiledSimulation, IsFineBeforeItIsSpoiled) {
  ASSERT_GE(simulation_.transfers.size(), 2U);
  EXPECT_GE(simulation_.transfers[0].reloaded, 0);
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(SpoiledSimulation, IsFoundByCopiesThatOverlap) {
  simulation_.transfers[1].out_begin_ns = simulation_.transfers[0].out_end_ns - 500;
  EXPECT_THAT(problems(), Contains(HasSubstr("begins before the one before it has ended")));
}

TEST_F(SpoiledSimulation, IsFoundByCopiesThatAreTooFast) {
  simulation_.transfers[0].out_end_ns = simulation_.transfers[0].out_begin_ns + 900;
  EXPECT_THAT(problems(), Contains(HasSubstr("is faster than the link")));
}

TEST_F(SpoiledSimulation, IsFoundByCopiesBeforeTheirTime) {
  simulation_.transfers[0].out_begin_ns = simulation_.transfers[0].saved_ns - 1;
  simulation_.transfers[0].back_begin_ns = simulation_.transfers[0].reloaded_ns - 1;
  EXPECT_THAT(problems(), Contains(HasSubstr("is copied out before it was asked for")));
  EXPECT_THAT(problems(), Contains(HasSubstr("comes back before it was asked for")));
}

TEST_F(SpoiledSimulation, IsFoundByMemoryThatIsUsedTooSoon) {
  simulation_.transfers[0].released_ns = simulation_.transfers[0].out_end_ns - 10;
  simulation_.transfers[0].ready_ns = simulation_.transfers[0].back_end_ns - 10;
  EXPECT_THAT(problems(), Contains(HasSubstr("is given back before its copy out has ended")));
  EXPECT_THAT(problems(), Contains(HasSubstr("is used before its copy back has ended")));
}

TEST_F(SpoiledSimulation, IsFoundByBytesThatDoNotFollow) {
  simulation_.memory[3].bytes += 1;
  simulation_.peak += Bytes(7);
  EXPECT_THAT(problems(), Contains(HasSubstr("at moment 3 of the step")));
  EXPECT_THAT(problems(), Contains(HasSubstr("the peak is not the most that is there")));
}

TEST_F(SpoiledSimulation, IsFoundByWhatIsKeptOrReloadedAgainstItsList) {
  Residency& list = plan_.chunks[0].residency.lists[0];
  std::fill(list.pending.begin(), list.pending.end(), 0);
  EXPECT_THAT(problems(), Contains(HasSubstr("more is kept at moment")));
}

TEST_F(SpoiledSimulation, IsFoundByTimesThatDoNotAddUp) {
  simulation_.waits.release_ns += 100;
  EXPECT_THAT(problems(), Contains(HasSubstr("its parts")));
}

/// With the smallest budget everything is released as early as possible; any other budget that a
/// step can meet must be met.
TEST(Residency, KeepsARandomStepWithinEveryBudgetThatIsPossible) {
  int moved = 0;
  const int cases = testing::cases_of(2500);
  for (int seed = 0; seed < cases; ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const Profile profile = testing::random_step_profile(random);
    Plan plan = testing::random_plan(profile, random);
    set_residency(profile, Bytes(0), plan);
    const Simulation smallest = simulate(profile, plan);
    set_residency(profile, Bytes(std::uint64_t{1} << 50U), plan);
    const Simulation largest = simulate(profile, plan);
    ASSERT_LE(smallest.peak, largest.peak) << "seed " << seed;
    ASSERT_EQ(largest.bytes_back, Bytes(0)) << "seed " << seed;
    const std::uint64_t between = largest.peak.count() - smallest.peak.count();
    const Bytes budget(smallest.peak.count() + random() % (between + 1));
    set_residency(profile, budget, plan);
    const Simulation within = simulate(profile, plan);
    ASSERT_LE(within.peak.count(), budget.count()) << "seed " << seed;
    moved += within.bytes_back > Bytes(0) ? 1 : 0;
  }
  EXPECT_GT(moved, cases / 5);
}

/// They may miss a budget, but hardly.
TEST(Residency, KeepsRandomPassesInFlightNearTheBudget) {
  int missed = 0;
  const auto cases = static_cast<unsigned>(testing::cases_of(1000));
  for (unsigned seed = 0; seed < cases; ++seed) {
    std::mt19937_64 random(seed);
    const Profile profile = testing::random_step_profile(random);
    Plan plan = testing::random_plan(profile, random);
    SimulateOptions options;
    options.schedule = testing::random_schedule(profile, random);
    const auto peak_within = [&](std::uint64_t budget) {
      set_residency(profile, Bytes(budget), plan, options.schedule);
      return simulate(profile, plan, options).peak.count();
    };
    const std::uint64_t smallest = peak_within(0);
    const std::uint64_t largest = peak_within(std::uint64_t{1} << 50U);
    const std::uint64_t budget = smallest + random() % (largest - smallest + 1);
    const std::uint64_t peak = peak_within(budget);
    ASSERT_LE(peak, largest) << "seed " << seed;
    missed += peak > budget ? 1 : 0;
  }
  EXPECT_LE(missed, 5);
}

}  // namespace
}  // namespace spillway
