#include "spillway/plan/planner.hpp"

#include <algorithm>
#include <iostream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/plan_queries.hpp"
#include "plan/support/replay_check.hpp"
#include "plan/support/synthetic_profile.hpp"
#include "plan/support/synthetic_timeline.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/simulate.hpp"
#include "support/error_text.hpp"
#include "support/random_cases.hpp"

namespace spillway {
namespace {

using namespace literals;
using ::testing::AllOf;
using testing::error_text;
using ::testing::HasSubstr;
using ::testing::Not;

/// Long enough that it never ends a search: plans then do not depend on how busy the machine is.
constexpr std::chrono::milliseconds kLong{600'000};

PlannerOptions within(Bytes budget) {
  PlannerOptions options;
  options.budget = budget;
  options.time_limit = kLong;
  return options;
}

Bytes share_of(Bytes bytes, double share) {
  return Bytes(static_cast<std::uint64_t>(static_cast<double>(bytes.count()) * share));
}

Bytes gibibytes(double number) { return share_of(1_GiB, number); }

std::string infeasible_text(const Profile& profile, const PlannerOptions& options) {
  try {
    (void)plan_for_budget(profile, options);
  } catch (const PlanInfeasible& error) {
    return error.what();
  }
  return "there is a plan";
}

/// What the plan itself and the simulator must say alike.
void expect_consistent(const Profile& profile, const PlannedStep& step,
                       const PlannerOptions& options) {
  EXPECT_TRUE(made_for(step.plan, profile));
  testing::check_replays(step.plan, profile);
  const Simulation simulation =
      simulate(profile, step.plan, {.schedule = options.schedule, .windows = {}});
  EXPECT_EQ(simulation.step_ns, step.step_ns);
  EXPECT_EQ(simulation.peak, step.peak);
  EXPECT_LE(step.bound_ns, step.step_ns);
  EXPECT_LE(step.closed_bound_ns, step.bound_ns);
  EXPECT_EQ(step.plan.predicted_step_ns, step.step_ns);
  EXPECT_EQ(step.plan.predicted_peak, step.peak);
  EXPECT_EQ(step.plan.bound_step_ns, step.bound_ns);
  EXPECT_EQ(step.plan.base_step_ns, step.base_ns);
}

TEST(Planner, KeepsEverythingThatFits) {
  const Profile profile = testing::llama_profile(2);
  const PlannedStep step = plan_for_budget(profile, within(100_GiB));
  EXPECT_EQ(step.step_ns, step.base_ns);
  EXPECT_EQ(step.bound_ns, step.base_ns);
  EXPECT_TRUE(step.within_gap);
  for (const Decision& decision : step.plan.chunks[0].decisions) {
    EXPECT_EQ(decision.action.kind, ActionKind::kKeep);
  }
  EXPECT_TRUE(step.plan.chunks[0].operators.empty());
}

TEST(Planner, IsNearItsBoundOnALlamaWhateverTheBudget) {
  const Profile profile = testing::llama_profile(16);
  std::int64_t before = 0;
  std::vector<double> budgets =
      testing::some(std::vector{2.0, 6.0, 12.0, 3.0, 4.0, 8.0, 10.0, 14.4}, 2);
  std::sort(budgets.begin(), budgets.end());
  for (const double budget : budgets) {
    const PlannerOptions options = within(gibibytes(budget));
    const PlannedStep step = plan_for_budget(profile, options);
    const auto share = [&](std::int64_t ns) {
      return static_cast<double>(ns) / static_cast<double>(step.base_ns);
    };
    std::cout << budget << " GiB of " << to_string(step.base_peak) << ": " << share(step.step_ns)
              << " of base, bound " << share(step.bound_ns) << ", closed form "
              << share(step.closed_bound_ns) << ", gap " << step.gap * 100 << " %\n";
    expect_consistent(profile, step, options);
    EXPECT_LE(step.peak, options.budget);
    EXPECT_LT(step.gap, 0.015);
    if (before > 0) {
      EXPECT_LE(step.step_ns, before);
    }
    before = step.step_ns;
  }
}

TEST(Planner, BearsALinkThatIsAsMuchSlowerAsTheMargin) {
  const Profile profile = testing::llama_profile(8);
  Profile slower = profile;
  for (double* speed : {&slower.link.out, &slower.link.back, &slower.link.out_with_back,
                        &slower.link.back_with_out}) {
    *speed *= 0.97;
  }
  const auto waits = [](const Profile& with, const PlannedStep& step) {
    return simulate(with, step.plan).waits.release_ns;
  };
  PlannerOptions options = within(4_GiB);
  options.link_margin = 0.03;
  const PlannedStep wary = plan_for_budget(profile, options);
  options.link_margin = 0;
  const PlannedStep bold = plan_for_budget(profile, options);
  EXPECT_EQ(wary.bound_ns, bold.bound_ns);
  EXPECT_LE(bold.step_ns, wary.step_ns);
  EXPECT_LT(static_cast<double>(wary.step_ns), static_cast<double>(bold.step_ns) * 1.002);
  EXPECT_EQ(waits(slower, wary), 0);
  EXPECT_GT(waits(slower, bold), wary.base_ns / 200);
}

TEST(Planner, OffloadsLessWhereCopiesSlowOperatorsDown) {
  Profile profile = testing::llama_profile(8);
  const PlannedStep free = plan_for_budget(profile, within(6_GiB));
  profile.link.slows_out = 0.007;
  profile.link.slows_back = 0.0125;
  const PlannedStep cheap = plan_for_budget(profile, within(6_GiB));
  expect_consistent(profile, cheap, within(6_GiB));
  profile.link.slows_out = profile.link.slows_back = 0.2;
  const PlannedStep dear = plan_for_budget(profile, within(6_GiB));
  expect_consistent(profile, dear, within(6_GiB));
  EXPECT_GT(cheap.bound_ns, free.bound_ns);
  EXPECT_GT(cheap.step_ns, free.step_ns);
  EXPECT_LT(cheap.gap, 0.015);
  EXPECT_LT(dear.gap, 0.015);
  const auto out = [](const Profile& with, const PlannedStep& step) {
    return simulate(with, step.plan).bytes_out.count();
  };
  EXPECT_LT(out(profile, dear), out(profile, free) / 4);
  EXPECT_LT(simulate(profile, dear.plan).step_ns, simulate(profile, free.plan).step_ns);
}

TEST(Planner, RefusesAMarginThatLeavesNoLink) {
  PlannerOptions options = within(8_GiB);
  for (const double margin : {-0.1, 1.0}) {
    options.link_margin = margin;
    EXPECT_THROW((void)plan_for_budget(testing::llama_profile(2), options), InvalidArgument);
  }
}

TEST(Planner, PlansAHundredAndTwentySixLayers) {
  const Profile profile = testing::llama_profile(126);
  const PlannerOptions options = within(gibibytes(54));
  const PlannedStep step = plan_for_budget(profile, options);
  std::cout << "126 layers: gap " << step.gap * 100 << " %\n";
  expect_consistent(profile, step, options);
  EXPECT_LE(step.peak, options.budget);
  EXPECT_LT(step.gap, 0.01);
}

TEST(Planner, PlansModelsWhoseResidualStreamIsNotSaved) {
  Profile profile = testing::transformer_profile(
      {.naming = testing::Naming::kLlama, .layers = 8, .casting_norms = true});
  testing::add_timelines(profile, {.forward_ns = 65'000'000, .backward_ns = 124'000'000});
  const Bytes all = plan_for_budget(profile, within(1000_GiB)).base_peak;
  for (const double share : testing::some(std::vector{0.25, 0.5}, 1)) {
    const PlannerOptions options = within(share_of(all, share));
    const PlannedStep step = plan_for_budget(profile, options);
    expect_consistent(profile, step, options);
    EXPECT_LE(step.peak, options.budget);
    EXPECT_LT(step.gap, 0.02);
  }
}

TEST(Planner, PlansForSeveralPassesInFlight) {
  Profile profile = testing::chunked_profile({.layers = 2}, 2);
  testing::add_timelines(profile);
  PlannerOptions options = within(1000_GiB);
  for (const int batch : {0, 1}) {
    options.schedule.push_back({0, batch, false});
    options.schedule.push_back({1, batch, false});
  }
  for (const int batch : {0, 1}) {
    options.schedule.push_back({1, batch, true});
    options.schedule.push_back({0, batch, true});
  }
  const Bytes all = plan_for_budget(profile, options).base_peak;
  options.budget = share_of(all, 0.4);
  const PlannedStep step = plan_for_budget(profile, options);
  expect_consistent(profile, step, options);
  EXPECT_LE(step.peak, options.budget);
  EXPECT_LT(step.step_ns, step.base_ns * 11 / 10);
}

TEST(Planner, SaysTheSameTwice) {
  const Profile profile = testing::llama_profile(2);
  const PlannerOptions options = within(gibibytes(1.5));
  EXPECT_EQ(plan_for_budget(profile, options).plan, plan_for_budget(profile, options).plan);
}

TEST(Planner, SaysWhyAndHowGoodThePlanIs) {
  const Profile profile = testing::llama_profile(2);
  const PlannedStep step = plan_for_budget(profile, within(gibibytes(1.5)));
  std::map<ActionKind, std::string> reasons;
  for (const Decision& decision : step.plan.chunks[0].decisions) {
    if (decision.fixed != FixedReason::kNone) continue;
    reasons[decision.action.kind] = decision.reason;
  }
  EXPECT_THAT(reasons[ActionKind::kRecompute],
              ::testing::MatchesRegex("planner: recompute, [0-9.]+ ms for [0-9.]+ .iB"));
  EXPECT_THAT(reasons[ActionKind::kOffload], HasSubstr("planner: offload"));
  EXPECT_THAT(step.plan.notes, ::testing::Contains(::testing::MatchesRegex(
                                   "at most [0-9.]+ % above any plan of this kind")));
}

TEST(Planner, LeavesWhatRulesDecideAsTheySay) {
  const Profile profile = testing::llama_profile(4);
  PlannerOptions options = within(3_GiB);
  options.rules = parse_rules(R"([[rule]]
layers = "0"
scope = "layers.*.mlp.act"
action = "offload"
[[rule]]
layers = "1"
scope = "layers.*.mlp.norm"
action = "recompute"
[[rule]]
scope = "layers.*.attention"
action = "keep"
)",
                              "rules");
  const PlannedStep step = plan_for_budget(profile, options);
  EXPECT_LE(step.peak, options.budget);
  const Plan by_rules = make_plan(profile, options.rules);
  int pinned = 0;
  for (std::size_t i = 0; i < by_rules.chunks[0].decisions.size(); ++i) {
    const Decision& wanted = by_rules.chunks[0].decisions[i];
    if (wanted.reason.find("rule ") != 0) continue;
    ++pinned;
    EXPECT_EQ(step.plan.chunks[0].decisions[i].action, wanted.action) << wanted.position.scope;
    EXPECT_EQ(step.plan.chunks[0].decisions[i].reason, wanted.reason);
  }
  EXPECT_GT(pinned, 20);
}

TEST(Planner, StaysWithinTheHostLimit) {
  const Profile profile = testing::llama_profile(4);
  PlannerOptions options = within(2_GiB);
  const PlannedStep free = plan_for_budget(profile, options);
  options.rules.limits.host = 128_MiB;
  const PlannedStep limited = plan_for_budget(profile, options);
  const auto host = [&](const PlannedStep& step) { return simulate(profile, step.plan).host_peak; };
  EXPECT_GT(host(free), 128_MiB);
  EXPECT_LE(host(limited), 128_MiB);
  EXPECT_LE(limited.peak, options.budget);
  EXPECT_LE(free.step_ns, limited.step_ns);
  EXPECT_LE(free.bound_ns, limited.bound_ns);
}

TEST(Planner, OffloadsNothingWithoutALink) {
  Profile profile = testing::llama_profile(8);
  const Bytes kept = simulate(profile, make_plan(profile, {})).peak;
  profile.link = {};
  PlannerOptions options = within(share_of(kept, 0.6));
  const PlannedStep step = plan_for_budget(profile, options);
  expect_consistent(profile, step, options);
  EXPECT_LE(step.peak, options.budget);
  const Simulation simulation = simulate(profile, step.plan);
  EXPECT_EQ(simulation.host_peak, 0_B);
  EXPECT_GT(simulation.replay_ns, 0);
  options.rules = parse_rules("[[rule]]\nmodule = 'core_attn'\naction = 'offload'\n", "a test");
  EXPECT_THAT(error_text<InvalidArgument>([&] { (void)plan_for_budget(profile, options); }),
              HasSubstr("rules offload, but the profile has no link speeds"));
}

TEST(Planner, SaysWhatIsInTheWayOfASmallBudget) {
  const Profile profile = testing::llama_profile(4);
  EXPECT_THAT(infeasible_text(profile, within(300_MiB)),
              AllOf(HasSubstr("[plan] no plan fits 300.0 MiB: the smallest peak is "),
                    HasSubstr("(layers.3.mlp.act, aten::mul backward)"),
                    HasSubstr("a smaller micro-batch or shorter sequences lower it"),
                    Not(HasSubstr("rules"))));
  PlannerOptions options = within(300_MiB);
  options.rules = parse_rules("[[rule]]\nscope = \"*.mlp\"\naction = \"keep\"\n", "rules");
  EXPECT_THAT(infeasible_text(profile, options), HasSubstr("leave it to the planner"));
}

TEST(Planner, FitsTheSmallestBudgetAndNothingLess) {
  const Profile profile = testing::llama_profile(4);
  const SmallestBudget smallest = smallest_budget(profile, within(0_B));
  EXPECT_EQ(smallest.scope, "layers.3.mlp.act");
  EXPECT_EQ(smallest.what, "aten::mul");
  EXPECT_LE(plan_for_budget(profile, within(smallest.budget)).peak, smallest.budget);
  EXPECT_THROW((void)plan_for_budget(profile, within(share_of(smallest.budget, 0.9))),
               PlanInfeasible);
}

TEST(Planner, GivesTheSmallestPlanWhereNoneFits) {
  const Profile profile = testing::llama_profile(4);
  const Bytes smallest = smallest_budget(profile, within(0_B)).budget;
  const PlannerOptions options = within(share_of(smallest, 0.9));
  const PlannedStep step = plan_or_smallest(profile, options);
  EXPECT_EQ("[plan] " + step.problem, infeasible_text(profile, options));
  EXPECT_EQ(step.peak, smallest);
  EXPECT_EQ(simulate(profile, step.plan).peak, smallest);
  EXPECT_EQ(step.plan.predicted_peak, smallest);
  EXPECT_EQ(step.plan.budget, options.budget);
}

TEST(Planner, ReservesNoMoreThanLeavesAPlan) {
  const Profile profile = testing::llama_profile(2);
  const Bytes smallest = smallest_budget(profile, within(0_B)).budget;
  PlannerOptions options = within(share_of(smallest, 1.5));
  const Bytes room = options.budget - smallest;
  for (const Bytes wanted : {Bytes(room.count() / 2), room + 1_MiB, options.budget * 2}) {
    options.reserve = wanted;
    const PlannedStep step = plan_or_smallest(profile, options);
    EXPECT_EQ(step.problem, "");
    EXPECT_EQ(step.reserved, std::min(wanted, room));
    EXPECT_LE(step.peak, options.budget);
    EXPECT_LE(simulate(profile, step.plan).peak + step.reserved, options.budget);
    EXPECT_EQ(plan_for_budget(profile, options).plan, step.plan);
  }
}

TEST(Planner, SaysThatAPlanFitsBeforeItHasTheBest) {
  const Profile profile = testing::llama_profile(4);
  const Bytes smallest = smallest_budget(profile, within(0_B)).budget;
  for (const double share : {0.5, 2.0}) {
    PlannerOptions options = within(share_of(smallest, share));
    int fits = 0;
    std::vector<std::string> later;
    options.fits = [&] { ++fits; };
    options.progress = [&](const std::string& what) {
      if (fits > 0) later.push_back(what);
    };
    (void)plan_or_smallest(profile, options);
    EXPECT_EQ(fits, share > 1 ? 1 : 0);
    EXPECT_EQ(later.empty(), share < 1);
  }
}

TEST(Planner, FindsTheSmallestMemoryForASlowdown) {
  const Profile profile = testing::llama_profile(2);
  PlannerOptions options = within(0_B);
  options.max_slowdown = 1.03;
  const PlannedStep step = plan_for_budget(profile, options);
  expect_consistent(profile, step, options);
  EXPECT_LE(static_cast<double>(step.step_ns), 1.03 * static_cast<double>(step.base_ns));
  EXPECT_LT(step.peak, share_of(step.base_peak, 0.7));
  EXPECT_LE(step.peak, *step.plan.budget);
  const PlannedStep less = plan_for_budget(profile, within(share_of(step.peak, 0.8)));
  EXPECT_GT(less.step_ns, step.step_ns);
}

TEST(Planner, DrawsACurveThatNeverRisesWithTheBudget) {
  const Profile profile = testing::llama_profile(2);
  const std::vector<CurvePoint> curve = plan_curve(profile, within(0_B));
  ASSERT_GE(curve.size(), 8U);
  for (std::size_t i = 0; i < curve.size(); ++i) {
    EXPECT_TRUE(curve[i].feasible);
    EXPECT_LE(curve[i].peak, curve[i].budget);
    EXPECT_LE(curve[i].bound_ns, curve[i].step_ns);
    if (i == 0) continue;
    EXPECT_LT(curve[i - 1].budget, curve[i].budget);
    EXPECT_GE(curve[i - 1].step_ns, curve[i].step_ns);
    EXPECT_GE(curve[i - 1].bound_ns, curve[i].bound_ns);
  }
  EXPECT_GT(curve.front().recomputed + curve.front().offloaded, curve.front().kept);
  EXPECT_EQ(curve.back().recomputed + curve.back().offloaded, 0_B);
}

TEST(Planner, MarksBudgetsOfACurveThatHaveNoPlan) {
  const Profile profile = testing::llama_profile(2);
  const std::vector<CurvePoint> curve = plan_curve(profile, within(0_B), {100_GiB, 1_MiB});
  ASSERT_EQ(curve.size(), 2U);
  EXPECT_TRUE(curve[0].feasible);
  EXPECT_FALSE(curve[1].feasible);
  EXPECT_EQ(curve[1].budget, 1_MiB);
}

// As large as a profile that can be read may say.
TEST(Planner, AnswersForTheLargestSizesToo) {
  for (const bool all : {false, true}) {
    Profile profile = testing::llama_profile(2);
    ChunkProfile& chunk = profile.chunks[0];
    const Bytes large(all ? (1ULL << 50U) / chunk.values.size() : kMostBytes.count());
    for (BufferProfile& buffer : chunk.buffers) {
      if (buffer.value < 0 || (!all && buffer.id != 5)) continue;
      buffer.size = large;
      chunk.values[static_cast<std::size_t>(buffer.value)].size = large;
    }
    ASSERT_NO_THROW((void)profile_from_json(to_json(profile), "p.json"));
    for (const Bytes budget : {2_GiB, large, Bytes(1ULL << 50U)}) {
      try {
        EXPECT_LE(plan_for_budget(profile, within(budget)).peak, budget);
      } catch (const PlanInfeasible&) {
        EXPECT_LT(budget, Bytes(1ULL << 50U));
      }
    }
  }
}

TEST(Planner, ReportsItsProgress) {
  const Profile profile = testing::llama_profile(3);
  PlannerOptions options = within(2_GiB);
  std::vector<std::string> said;
  options.progress = [&said](const std::string& text) { said.push_back(text); };
  (void)plan_for_budget(profile, options);
  EXPECT_THAT(said, ::testing::Contains("solving the MILP model"));
}

TEST(Planner, RefusesWhatHasNoMeaning) {
  Profile profile = testing::llama_profile(1);
  PlannerOptions options = within(1_GiB);
  options.max_slowdown = 1.0;
  EXPECT_THROW((void)plan_for_budget(profile, options), InvalidArgument);
  options.max_slowdown.reset();
  profile.link.back = 0;
  EXPECT_THROW((void)plan_for_budget(profile, options), InvalidArgument);
  profile.link.back = 1e9;
  profile.chunks[0].timeline.clear();
  EXPECT_THROW((void)plan_for_budget(profile, options), InvalidArgument);
}

}  // namespace
}  // namespace spillway
