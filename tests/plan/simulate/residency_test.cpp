// Residency lists: a step that follows them does what the step did that they were recorded from.
#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "plan/simulate/simulator.hpp"
#include "plan/support/random_step.hpp"
#include "spillway/core/index.hpp"
#include "support/random_cases.hpp"

namespace spillway {
namespace {

/// Limits in bytes, as while lists are found.
class Targets final : public StepListener {
 public:
  explicit Targets(const ByteTargets& targets) : targets_(targets) {}

  ByteLimit saved(const StepWalk& /*walk*/, const StepPosition& at, int site) override {
    return {targets_.forward[to_index(at.chunk)][to_index(site)], targets_.pending_release};
  }
  ByteLimit unpacked(const StepWalk& /*walk*/, const StepPosition& at, int unpack,
                     std::int64_t /*fetched*/) override {
    return {targets_.backward[to_index(at.chunk)][to_index(unpack)], targets_.prefetch};
  }

 private:
  const ByteTargets& targets_;
};

/// A random step under a random plan, by lists and by limits in bytes.
struct Case {
  explicit Case(unsigned seed)
      : random(seed),
        profile(testing::random_step_profile(random)),
        plan(testing::random_plan(profile, random)),
        schedule(testing::random_schedule(profile, random)),
        simulator(profile, schedule) {
    if (random() % 4 == 0) plan.limits.host = Bytes(random() % 50'000'000);
  }

  /// The commands under limits, with the plan's list of what is not copied alone.
  [[nodiscard]] CommandLog commands_under(const StepLimits& limits, StepListener& listener) const {
    std::vector<PlannedChunk> chunks;
    for (std::size_t i = 0; i < plan.chunks.size(); ++i) {
      chunks.push_back(planned(simulator.models()[i], plan.chunks[i], plan.limits));
    }
    StepResidency held;
    std::vector<std::size_t> passes(plan.chunks.size());
    for (const PassStep& step : simulator.schedule()) {
      for (std::size_t i = 0; i < plan.chunks.size() && !step.backward; ++i) {
        if (plan.chunks[i].chunk != step.chunk) continue;
        held.emplace_back().held = plan.chunks[i].residency.of(passes[i]++)->held;
      }
    }
    StepWalk walk(chunks, simulator.schedule(), limits, listener);
    walk.use(held);
    CommandLog log;
    walk.log_to(log);
    walk.run();
    return log;
  }

  std::mt19937_64 random;
  Profile profile;
  Plan plan;
  PassSchedule schedule;
  Simulator simulator;
};

std::int64_t moved(const CommandLog& log) {
  return std::count_if(log.begin(), log.end(), [](const LoggedCommand& each) {
    return each.command == Command::kPrefetch || each.command == Command::kRelease;
  });
}

TEST(Residency, GivesTheCommandsOfTheLimitsItWasFoundUnder) {
  std::int64_t commands = 0;
  const auto cases = static_cast<unsigned>(testing::cases_of(1500));
  for (unsigned seed = 0; seed < cases; ++seed) {
    Case each(seed);
    ByteTargets targets =
        each.simulator.set_residency(Bytes(each.random() % 100'000'000), each.plan);
    if (each.random() % 2 == 0) {
      targets.pending_release = static_cast<std::int64_t>(each.random() % 20'000'000);
      targets.prefetch = static_cast<std::int64_t>(each.random() % 20'000'000);
    }
    (void)each.simulator.set_residency(targets, each.plan);
    StepLimits limits(each.plan, {});
    limits.engine.offload_window = limits.engine.prefetch_window = EngineLimits::kNone;
    limits.engine.cap = EngineLimits::kNone;
    Targets listener(targets);
    const CommandLog found = each.simulator.commands(each.plan);
    ASSERT_EQ(found, each.commands_under(limits, listener)) << "seed " << seed;
    commands += moved(found);
  }
  EXPECT_GT(commands, 5 * static_cast<std::int64_t>(cases));
}

TEST(Residency, GivesTheCommandsOfTheWindowsItWasRecordedUnder) {
  std::int64_t commands = 0;
  const auto cases = static_cast<unsigned>(testing::cases_of(1500));
  for (unsigned seed = 0; seed < cases; ++seed) {
    Case each(seed);
    Limits windows;
    windows.offload_window = Bytes(each.random() % 10'000'000);
    windows.prefetch_window = Bytes(each.random() % 10'000'000);
    each.simulator.set_residency_of_windows(windows, each.plan);
    StepListener nobody;
    const CommandLog found = each.simulator.commands(each.plan, windows);
    ASSERT_EQ(found, each.commands_under(StepLimits(each.plan, windows), nobody))
        << "seed " << seed;
    commands += moved(found);
  }
  EXPECT_GT(commands, 10 * static_cast<std::int64_t>(cases));
}

TEST(Residency, StoresEqualListsOnce) {
  ChunkResidency residency;
  EXPECT_EQ(residency.of(0), nullptr);
  const Residency first{{1, 2}, {0, 1}, 1, {}};
  const Residency second{{1, 2}, {0, 1}, 1, {0}};
  for (const Residency& each : {first, second, first}) residency.add(each);
  EXPECT_EQ(residency.lists.size(), 2U);
  EXPECT_EQ(*residency.of(1), second);
  EXPECT_EQ(residency.of(2), residency.of(0));
  EXPECT_EQ(residency.of(7), residency.of(2));  // Passes beyond the last one are as that.
}

}  // namespace
}  // namespace spillway
