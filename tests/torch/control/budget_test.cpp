// Sessions with a budget: record, plan, verify, time, and report.
#include "spillway/plan/budget.hpp"

#include <chrono>
#include <system_error>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "spillway/core/error.hpp"
#include "spillway/plan/rules.hpp"
#include "spillway/torch/session.hpp"
#include "support/error_text.hpp"
#include "support/no_threads.hpp"
#include "torch/execute/session_core.hpp"
#include "torch/support/training.hpp"
#include "torch/support/wrapping_torch_device.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::difference;
using testing::error_text;
using ::testing::HasSubstr;
using testing::single_step;
using testing::TinyModel;

SessionOptions with_budget(Budget budget) {
  SessionOptions options = testing::with_rules("");
  options.budget = budget;
  options.plan_in_background = false;
  return options;
}

TEST(Budget, IsBytesOrAShareOrWhatIsFree) {
  EXPECT_EQ(Budget(3_GiB).resolve(8_GiB, 9_GiB), 3_GiB);
  EXPECT_EQ(Budget::share(0.25).resolve(8_GiB, 9_GiB), 2_GiB);
  EXPECT_EQ(Budget::automatic().resolve(8_GiB, 9_GiB), 8_GiB);
  EXPECT_EQ(Budget::automatic(10_GiB).resolve(8_GiB, 9_GiB), 0_B);
  for (const double wrong : {0.0, 1.0, -0.5, 33.0}) {
    EXPECT_THAT(error_text<InvalidArgument>([&] { (void)Budget::share(wrong); }),
                ::testing::StartsWith("[budget] a share of more than 0 and less than 1 wanted"));
  }
}

TEST(BudgetedSession, PlansVerifiesTimesAndStaysWithinTheBudget) {
  Session session(with_budget(Budget::share(0.8)));
  EXPECT_EQ(difference({}, session, 16, single_step), 0);
  const SessionReport report = session.report();
  ASSERT_TRUE(report.budget);
  EXPECT_GE(report.budget->plans, 1U);
  EXPECT_LE(report.budget->plans, 4U);  // At most three more, with the times of timed steps.
  EXPECT_EQ(report.budget->unplanned_steps, 0U);
  EXPECT_GT(report.budget->budget, 0_B);
  EXPECT_LE(report.budget->predicted_peak, report.budget->budget);
  EXPECT_GT(report.budget->measured_peak, 0_B);
  EXPECT_LE(report.budget->measured_peak, report.budget->budget) << report;
  if (report.actions.contains("recompute")) {
    EXPECT_GT(report.budget->verification_peak, 0_B) << report;
  }
  EXPECT_GT(report.budget->predicted_step, Nanoseconds(0));
  EXPECT_GT(report.budget->measured_step, Nanoseconds(0));
  EXPECT_GE(report.budget->predicted_step, report.budget->base_step);
  EXPECT_LE(report.budget->bound_step, report.budget->predicted_step);
  EXPECT_EQ(report.recorded_steps, 1U);
  EXPECT_TRUE(report.fallbacks.empty()) << report;
  EXPECT_EQ(session.plan()->budget, report.budget->budget);
  EXPECT_THAT(report.to_text(), HasSubstr("  budget                 "));
  EXPECT_THAT(report.to_text(), HasSubstr("slower than any of its kind"));
  EXPECT_THAT(report.to_json(), HasSubstr("\"predicted_peak\": " +
                                          std::to_string(report.budget->predicted_peak.count())));
}

TEST(BudgetedSession, VerifiesWithinTheBudgetWhereBuffersCanBeOffloaded) {
  for (const double share : {0.5, 0.8}) {
    SCOPED_TRACE(share);
    SessionOptions options = with_budget(Budget::share(share));
    // The planner itself would offload, from the CPU to the CPU.
    options.rules = parse_rules(
        "[[rule]]\nproducer = [\"*norm*\", \"*gelu*\", \"aten::addmm\"]\n"
        "action = \"recompute\"\n",
        "rules.toml");
    Session session(std::move(options));
    const auto large_step = [](TinyModel& model, Step*, int i) {
      at::Tensor loss = model.loss(model.tokens(8, 128, i));
      loss.backward();
      return loss.detach();
    };
    EXPECT_EQ(difference({.layers = 8}, session, 6, large_step), 0);
    const SessionReport report = session.report();
    EXPECT_GT(report.repeated_calls, 0U);
    EXPECT_TRUE(report.fallbacks.empty()) << report;
    EXPECT_GT(report.budget->verification_peak, 0_B);
    EXPECT_LE(report.budget->verification_peak, report.budget->budget) << report;
  }
}

TEST(BudgetedSession, RecomputesWhereThereIsTooLittleHostMemoryToMeasureIt) {
  SessionOptions options = with_budget(Budget::share(0.8));
  options.host = 6_KiB;
  Session session(std::move(options));
  EXPECT_EQ(difference({.layers = 8}, session, 8, single_step), 0);
  const SessionReport report = session.report();
  EXPECT_EQ(session.profile()->link.out, 0);
  EXPECT_EQ(report.budget->problem, "") << report;
  EXPECT_GT(report.repeated_calls, 0U) << report;
  EXPECT_EQ(report.bytes_out, 0_B) << report;
  EXPECT_LE(report.budget->measured_peak, report.budget->budget) << report;
}

TEST(BudgetedSession, KeepsTheTimesOfATimedStep) {
  Session session(with_budget(Budget::share(0.9)));
  TinyModel model({});
  session.register_model(model);
  std::vector<std::shared_ptr<const Profile>> profiles;
  for (int i = 0; i < 20; ++i) {
    const auto step = session.step();
    model.loss(model.tokens(2, 32, i)).backward();
    profiles.push_back(session.profile());
  }
  // The first step records; the next one that does not verify is timed, and four of each later
  // plan, of which there are at most two.
  EXPECT_NE(profiles[1], profiles[4]);
  EXPECT_EQ(profiles[18], profiles[19]);
  EXPECT_EQ(structure_digest(*profiles[1]), structure_digest(*profiles[19]));
  const ChunkProfile& before = profiles[1]->chunks[0];
  const ChunkProfile& after = profiles[19]->chunks[0];
  ASSERT_EQ(before.timeline.size(), after.timeline.size());
  for (std::size_t i = 0; i < before.timeline.size(); ++i) {
    EXPECT_EQ(before.timeline[i].kind, after.timeline[i].kind);
    EXPECT_EQ(before.timeline[i].index, after.timeline[i].index);
    EXPECT_EQ(before.timeline[i].untracked_bytes, after.timeline[i].untracked_bytes);
  }
  EXPECT_NE(before.forward_ns, after.forward_ns);
  EXPECT_GT(after.backward_ns, 0);
}

TEST(BudgetedSession, ThrowsOnceIfNoPlanFitsAndContinues) {
  for (const bool background : {false, true}) {
    SessionOptions options = with_budget(Budget(1_KiB));
    options.plan_in_background = background;
    Session session(std::move(options));
    // So large that the planner takes longer than a few steps.
    TinyModel model({.layers = 12});
    session.register_model(model);
    std::vector<int> errors;
    for (int i = 0; i < 8; ++i) {
      try {
        const auto step = session.step();
        model.loss(model.tokens(1, 16, i)).backward();
      } catch (const PlanInfeasible& error) {
        errors.push_back(i);
        EXPECT_THAT(error.what(), HasSubstr("[plan] no plan fits 1.0 KiB: the smallest peak is "));
      }
    }
    // The first step records, and the second one too: there are gradients now.
    EXPECT_EQ(errors, std::vector<int>{2}) << session.report();
    EXPECT_EQ(session.report().recorded_steps, 2U);
    const SessionReport report = session.report();
    EXPECT_THAT(report.budget->problem, HasSubstr("no plan fits"));
    EXPECT_EQ(report.budget->plans, 0U);
    EXPECT_GT(report.budget->unplanned_steps, 0U);
    EXPECT_GT(report.bytes_out, 100_KiB);  // Everything is still offloaded.
    EXPECT_GT(report.actions.at("offload").buffers, 10U);
  }
}

/// A table as libraries and models keep it: allocated in the first step and kept.
TEST(BudgetedSession, RecordsAgainIfTheFirstStepMadePersistentAllocations) {
  for (const bool background : {false, true}) {
    SessionOptions options = with_budget(Budget(12_MiB));
    options.plan_in_background = background;
    Session session(std::move(options));
    const at::Tensor weight = at::ones({1 << 18}, at::kFloat).requires_grad_();
    at::Tensor table;
    for (int i = 0; i < 500 && session.report().budget->measured_peak == 0_B; ++i) {
      weight.mutable_grad() = at::Tensor();
      {
        const auto step = session.step();
        if (!table.defined()) table = at::ones({4 << 20}, at::kFloat);
        (weight.sin().exp().cos() * table[0]).sum().backward();
      }
      if (background) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    const SessionReport report = session.report();
    EXPECT_EQ(report.recorded_steps, 2U) << report;
    EXPECT_GE(report.budget->plans, 1U) << report;
    EXPECT_GT(report.budget->measured_peak, 0_B) << report;
    EXPECT_LE(report.budget->measured_peak, 12_MiB) << report;
  }
}

/// What an earlier model left, until a collector of garbage finds it: in the middle of a step.
TEST(BudgetedSession, RecordsAgainIfTheFirstStepFreedEarlierMemory) {
  count_host_memory();
  const auto plan_with = [](std::int64_t garbage_elements, std::size_t steps) {
    Session session(with_budget(Budget::share(0.75)));
    const at::Tensor weight = at::ones({1 << 18}, at::kFloat).requires_grad_();
    at::Tensor garbage = at::ones({garbage_elements}, at::kFloat);
    for (std::size_t i = 0; i < steps; ++i) {
      weight.mutable_grad() = at::Tensor();
      const auto step = session.step();
      at::Tensor x = weight;
      for (int layer = 0; layer < 8; ++layer) {
        x = x.sin();
        if (layer == 2) garbage.reset();
      }
      x.sum().backward();
    }
    const SessionReport report = session.report();
    EXPECT_EQ(report.budget->problem, "") << report;
    EXPECT_EQ(report.recorded_steps, steps - 3) << report;
    EXPECT_LE(report.budget->measured_peak, report.budget->budget) << report;
    return report.budget->budget;
  };
  const auto budget = static_cast<double>(plan_with(16 << 20, 5).count());
  EXPECT_NEAR(budget, static_cast<double>(plan_with(1, 4).count()), 16);
}

TEST(BudgetedSession, ContinuesWithinTheBudgetWhilePlanning) {
  SessionOptions options = with_budget(Budget::share(0.7));
  options.plan_in_background = true;
  Session session(std::move(options));
  // However long the planner takes: unplanned steps stay within the budget, too.
  const auto patient = [&](TinyModel& model, Step* step, int i) {
    if (step != nullptr && i > 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return single_step(model, step, i);
  };
  EXPECT_EQ(difference({}, session, 12, patient), 0);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
  EXPECT_TRUE(session.report().demoted.empty()) << session.report();
}

TEST(BudgetedSession, MayEndWhilePlanning) {
  SessionOptions options = with_budget(Budget::share(0.7));
  options.plan_in_background = true;
  Session session(std::move(options));
  TinyModel model({});
  session.register_model(model);
  const auto step = session.step();
  model.loss(model.tokens(2, 32, 0)).backward();
}

TEST(BudgetedSession, PlansInTheStepWhereNoThreadCanBeHad) {
  SessionOptions options = with_budget(Budget::share(0.8));
  options.plan_in_background = true;
  Session session(std::move(options));
  EXPECT_EQ(difference({}, session, 1, single_step), 0);
  session.wait_for_plan();
  const PassSchedule two = accumulate(*session.profile(), 2);
  {
    const testing::NoThreads no_threads;
    EXPECT_THROW(std::thread([] {}).join(), std::system_error);
    (void)session.step(two);
  }
  EXPECT_EQ(session.report().fallbacks.at("no thread for the planner: a step waited for it"), 1U);
  (void)session.step(two);
  EXPECT_EQ(session.report().budget->plans, 2U) << session.report();
}

/// Does not say how much memory is left.
class UnknownRoom final : public testing::WrappingTorchDevice {
 public:
  explicit UnknownRoom(bool& fails) : fails_(&fails) {}
  [[nodiscard]] Bytes room() const override {
    if (*fails_) throw DeviceError("room", "unknown, as the test wants it");
    return WrappingTorchDevice::room();
  }

 private:
  bool* fails_;
};

TEST(BudgetedSession, GoesOnIfPlanningFailsBetweenSteps) {
  for (const bool strict : {false, true}) {
    bool fails = false;
    SessionOptions options = with_budget(Budget::share(0.8));
    options.strict = strict;
    install_interception();
    const auto core =
        std::make_shared<SessionCore>(std::move(options), std::make_unique<UnknownRoom>(fails));
    TinyModel model({});
    for (const at::Tensor& each : model.parameters()) {
      core->register_fixed(each, FixedReason::kParameter);
    }
    core->begin_step({});
    model.loss(model.tokens(2, 32, 0)).backward();
    core->end_any_step();
    ASSERT_EQ(core->report().budget->plans, 1U) << core->report();
    const PassSchedule two = accumulate(*core->profile(), 2);
    fails = true;
    if (strict) {
      EXPECT_THROW((void)core->begin_step(two), DeviceError);
    } else {
      core->begin_step(two);
      core->end_any_step();
      EXPECT_EQ(
          core->report().fallbacks.at("planning failed: [room] unknown, as the test wants it"), 1U);
    }
    fails = false;
    core->begin_step(two);
    core->end_any_step();
    EXPECT_EQ(core->report().budget->plans, 2U) << core->report();
  }
}

TEST(BudgetedSession, PlansForSeveralPassesInFlight) {
  for (const bool offload_window : {true, false}) {
    Session session(with_budget(Budget::share(0.9)));
    EXPECT_EQ(difference({}, session, 6,
                         [&](TinyModel& model, Step* step, int i) {
                           return offload_window ? testing::gpipe_step(model, step, i, 3)
                                                 : testing::accumulated_step(model, i, 3);
                         }),
              0);
    EXPECT_GE(session.report().budget->plans, 1U) << session.report();
    EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
  }
}

TEST(BudgetedSession, PlansWithALargerReserveAfterOverBudgetSteps) {
  Session session(with_budget(Budget::share(0.8)));
  TinyModel model({});
  session.register_model(model);
  const auto steps = [&](std::int64_t beside, int count) {
    for (int i = 0; i < count; ++i) {
      const auto step = session.step();
      const at::Tensor held =
          at::zeros({beside});  // Not a saved buffer, so it cannot be offloaded.
      model.loss(model.tokens(2, 32, i)).backward();
    }
    return session.report();
  };
  const SessionReport before = steps(1, 12);
  const SessionReport larger = steps(16384, 8);
  EXPECT_GT(larger.budget->over_budget_steps, before.budget->over_budget_steps) << larger;
  EXPECT_GT(larger.budget->plans, before.budget->plans) << larger;
  EXPECT_EQ(larger.budget->budget, before.budget->budget);
  EXPECT_LE(larger.budget->plans, before.budget->plans + 3 + 3) << larger;
}

TEST(BudgetedSession, HoldsForSequencesLongerThanProfiled) {
  Session session(with_budget(Budget::share(0.8)));
  const auto lengths = [](TinyModel& model, Step*, int i) {
    at::Tensor loss = model.loss(model.tokens(2, i < 12 ? 32 : 40, i));
    loss.backward();
    return loss;
  };
  EXPECT_EQ(difference({}, session, 20, lengths), 0);
  const SessionReport report = session.report();
  EXPECT_EQ(report.budget->over_budget_steps, 0U) << report;
  EXPECT_LE(report.budget->measured_peak, report.budget->budget) << report;
  EXPECT_EQ(report.recorded_steps, 1U);
  EXPECT_GT(
      report.fallbacks.at(
          "activation larger than profiled: a buffer planned to stay on the device was offloaded"),
      0U);
}

TEST(BudgetedSession, LetsRulesFixWhatTheyMatch) {
  SessionOptions options = testing::with_rules(
      "[[rule]]\nscope = \"layers.*.mlp\"\naction = \"offload\"\n"
      "[[rule]]\nscope = \"layers.0.attention*\"\naction = \"keep\"\n");
  options.budget = Budget::share(0.9);
  options.plan_in_background = false;
  Session session(std::move(options));
  EXPECT_EQ(difference({}, session, 5, single_step), 0);
  ASSERT_EQ(session.report().budget->plans > 0, true) << session.report();
  for (const Decision& decision : session.plan()->chunks[0].decisions) {
    if (decision.fixed != FixedReason::kNone) continue;
    if (decision.position.scope.ends_with(".mlp")) {
      EXPECT_EQ(decision.action.kind, ActionKind::kOffload) << decision.reason;
    }
    if (decision.position.scope.starts_with("layers.0.attention")) {
      EXPECT_EQ(decision.action.kind, ActionKind::kKeep) << decision.reason;
    }
  }
}

/// A step with three times the tokens: every activation is three times as large.
at::Tensor step_of(TinyModel& model, int batch, int i) {
  at::Tensor loss = model.loss(model.tokens(batch, 32, i));
  loss.backward();
  return loss;
}

TEST(BudgetedSession, ReportsDriftAndReplansOnce) {
  for (const bool replan : {false, true}) {
    SessionOptions options = with_budget(Budget(4_MiB));
    options.small = 256_B;
    options.replan = replan;
    options.drift = 0.5;
    Session session(std::move(options));
    EXPECT_EQ(
        difference({}, session, 14,
                   [](TinyModel& model, Step*, int i) { return step_of(model, i < 7 ? 1 : 3, i); }),
        0);
    const SessionReport report = session.report();
    if (replan) {
      EXPECT_GE(report.recorded_steps, 2U) << report;
    } else {
      EXPECT_EQ(report.recorded_steps, 1U) << report;
      EXPECT_THAT(report.budget->drift,
                  ::testing::Contains(::testing::MatchesRegex(
                      "the peak is [0-9.]+ [KM]iB, [0-9.]+ % more than predicted")));
      EXPECT_THAT(report.to_text(), HasSubstr("  drift "));
    }
  }
}

TEST(BudgetedSession, TellsWhatThePlannerFoundAlsoIfNoStepFollows) {
  for (const bool fits : {false, true}) {
    SessionOptions options = with_budget(fits ? Budget::share(0.8) : Budget(1_KiB));
    options.plan_in_background = true;
    Session session(std::move(options));
    TinyModel model({});
    session.register_model(model);
    {
      const auto step = session.step();
      model.loss(model.tokens(2, 32, 0)).backward();
      EXPECT_THROW(session.wait_for_plan(), InvalidArgument);
    }
    if (fits) {
      session.wait_for_plan();
      EXPECT_TRUE(session.report().budget->planned);
      EXPECT_EQ(session.report().budget->plans, 1U);
    } else {
      EXPECT_THAT(error_text<PlanInfeasible>([&] { session.wait_for_plan(); }),
                  HasSubstr("[plan] no plan fits 1.0 KiB"));
      EXPECT_EQ(session.report().budget->plans, 0U);
    }
  }
}

nlohmann::json json_of(const Session& session) {
  return nlohmann::json::parse(session.report().to_json());
}

TEST(BudgetReport, HasThePeaksOfAllKindsOfSteps) {
  SessionOptions options = with_budget(Budget::share(0.6));
  options.rules = parse_rules("[[rule]]\nproducer = \"*gelu*\"\naction = \"recompute\"\n", "rules");
  Session session(std::move(options));
  EXPECT_EQ(json_of(session)["budget"]["budget"], 0);  // A share of what is not known yet.
  EXPECT_FALSE(json_of(session).contains("last_step"));
  TinyModel model({});
  session.register_model(model);
  const auto step_with = [&](int layers) {
    model.zero_gradients();
    {
      const auto step = session.step();
      if (layers > 0) model.loss(model.tokens(8, 64, 0), {layers < 1, layers < 2}).backward();
    }
    return json_of(session);
  };
  const nlohmann::json recorded = step_with(3);
  EXPECT_EQ(recorded["last_step"]["kind"], "recording");
  EXPECT_EQ(recorded["budget"]["steps"]["recording"]["steps"], 1);
  EXPECT_EQ(recorded["budget"]["steps"]["recording"]["peak"], recorded["last_step"]["peak"]);
  EXPECT_GT(recorded["last_step"]["peak"], 0);
  EXPECT_GT(recorded["budget"]["budget"], 0);
  EXPECT_EQ(recorded["budget"]["measured_steps"], 0);
  EXPECT_EQ(recorded["budget"]["measured_peak"], 0);
  EXPECT_EQ(step_with(3)["last_step"]["kind"], "verification");
  nlohmann::json planned;
  for (int i = 0; i < 20; ++i) planned = step_with(3);
  EXPECT_EQ(planned["last_step"]["kind"], "planned");
  EXPECT_EQ(planned["budget"]["measured_peak"], planned["last_step"]["peak"]);
  EXPECT_LE(planned["last_step"]["peak"], planned["budget"]["budget"]);
  EXPECT_GT(planned["budget"]["measured_steps"], 0);
  // None of these is what the plan gives.
  session.trace_next_step();
  const nlohmann::json traced = step_with(3);
  EXPECT_EQ(traced["last_step"]["kind"], "traced");
  EXPECT_EQ(traced["budget"]["measured_steps"], planned["budget"]["measured_steps"]);
  const nlohmann::json nothing = step_with(0);
  EXPECT_EQ(nothing["last_step"]["kind"], "diverged");
  EXPECT_EQ(nothing["budget"]["measured_peak"], planned["budget"]["measured_peak"]);
  const nlohmann::json fewer = step_with(1);
  EXPECT_EQ(fewer["last_step"]["kind"], "diverged");
  EXPECT_EQ(fewer["budget"]["steps"]["diverged"]["steps"], 2);
  EXPECT_EQ(fewer["budget"]["steps"]["diverged"]["peak"], fewer["last_step"]["peak"]);
  EXPECT_EQ(fewer["budget"]["measured_peak"], planned["budget"]["measured_peak"]);
}

TEST(BudgetReport, HasWhatSchema1CalledOtherwiseUnderItsOldNameToo) {
  SessionReport report;
  report.bytes_recomputed = 1_B;
  report.offloads_skipped.buffers = 2;
  report.shard.emplace().part_bytes = 3_B;
  report.shard->regathered = 4;
  report.shard->mismatched = {"five"};
  report.budget.emplace().unplanned_steps = 6;
  report.budget->verification_peak = 7_B;
  report.budget->over_budget_steps = 8;
  const auto json = nlohmann::json::parse(report.to_json());
  EXPECT_EQ(json["schema"], "spillway.report/2");
  EXPECT_EQ(json["bytes_remade"], 1);  // old name
  EXPECT_EQ(json["stayed"]["buffers"], 2);
  EXPECT_EQ(json["shard"]["held"], 3);
  EXPECT_EQ(json["shard"]["restored"], 4);
  EXPECT_EQ(json["shard"]["refused"][0], "five");
  EXPECT_EQ(json["budget"]["waiting"], 6);
  EXPECT_EQ(json["budget"]["proving_peak"], 7);  // old name
  EXPECT_EQ(json["budget"]["above"], 8);
  EXPECT_EQ(json["renamed"].size(), 8U);
  EXPECT_EQ(json["renamed"]["above"], "over_budget_steps");
}

TEST(BudgetReport, SaysThatStepsWithoutAPlanWereOverTheBudget) {
  Session session(with_budget(Budget(1_KiB)));
  TinyModel model({});
  session.register_model(model);
  for (int i = 0; i < 5; ++i) {
    try {
      const auto step = session.step();
      model.loss(model.tokens(2, 32, i)).backward();
    } catch (const PlanInfeasible&) {
      EXPECT_EQ(i, 2);
    }
  }
  const SessionReport report = session.report();
  EXPECT_EQ(report.budget->budget, 1_KiB);
  EXPECT_FALSE(report.budget->planned);
  EXPECT_EQ(report.budget->unplanned_steps, 2U);
  const nlohmann::json json = json_of(session);
  EXPECT_EQ(json["last_step"]["kind"], "unplanned");
  EXPECT_GT(json["budget"]["steps"]["unplanned"]["peak"], 1 << 10);
  EXPECT_EQ(json["budget"]["predicted_peak"], 0);
}

}  // namespace
}  // namespace spillway
