/// Budgets where the experts of a rank get another number of rows in every step.

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "moe_training.hpp"
#include "support/random_cases.hpp"
#include "support/ranks.hpp"

namespace spillway {
namespace {

using testing::count_different;
using testing::moe_batches;
using testing::moe_model;
using testing::moe_session;
using testing::MoeCase;
using testing::ranks;

constexpr const char* kLeft =
    "activation larger than profiled: a buffer planned to stay on the device was offloaded";

struct Outcome {
  std::vector<at::Tensor> values;  ///< Losses and gradients.
  std::vector<Bytes> peaks;        ///< By step; 0 where none was measured.
};

/// Of as many steps as there are lengths of sequences. A length of 0 stands for a step of the
/// longest ones in which all words are the same, so that all tokens choose the same experts.
Outcome train(const MoeCase& given, const std::vector<std::int64_t>& lengths, Session* session) {
  MoeCase of = given;
  of.experts = ranks().everyone();
  PipelineLayer model = moe_model(of);
  const Topology topology(ranks().size(), {.expert = ranks().size()});
  PipelineRunner runner(model, make_pipeline_groups(ranks(), topology, model));
  if (session != nullptr) session->register_model(model);
  Outcome outcome;
  for (std::size_t step = 0; step < lengths.size(); ++step) {
    runner.zero_gradients();
    const std::int64_t length = lengths[step];
    auto batches =
        moe_batches(static_cast<std::int64_t>(step), ranks().rank(), 2, length == 0 ? 32 : length);
    if (length == 0) {
      for (MicroBatch& batch : batches) batch.inputs.at(0).fill_(3);
    }
    outcome.values.push_back(runner.train(batches, session).loss.clone());
    const at::NoGradGuard no_gradients;
    for (const at::Tensor& parameter : model.parameters()) {
      outcome.values.push_back(parameter.grad().clone());
      parameter.sub_(parameter.grad(), 0.5);
    }
    if (session != nullptr) outcome.peaks.push_back(session->report().budget->measured_peak);
  }
  return outcome;
}

SessionOptions with_budget() {
  SessionOptions options = moe_session("");
  options.budget = Budget::share(0.7);
  options.plan_in_background = false;
  return options;
}

/// On all ranks together.
std::int64_t sum_of(std::uint64_t count) {
  at::Tensor sum = at::full({1}, static_cast<std::int64_t>(count), at::kLong);
  ranks().everyone().all_reduce(sum);
  return sum.item<std::int64_t>();
}

std::uint64_t times_left(const SessionReport& report) {
  const auto found = report.fallbacks.find(kLeft);
  return found == report.fallbacks.end() ? 0 : found->second;
}

TEST(ExpertBudget, HoldsInEveryStepWhileRowsChange) {
  for (const MoeOverlap overlap :
       testing::some(std::vector{MoeOverlap::kShared, MoeOverlap::kHalves}, 1)) {
    const std::vector<std::int64_t> lengths(28, 32);
    Session session(with_budget());
    const Outcome found = train({.overlap = overlap}, lengths, &session);
    const Outcome wanted = train({.overlap = overlap}, lengths, nullptr);
    EXPECT_EQ(count_different(found.values, wanted.values), 0);
    const SessionReport report = session.report();
    EXPECT_EQ(report.recorded_steps, 1U);
    EXPECT_EQ(report.budget->over_budget_steps, 0U) << report;
    const auto measured = std::count_if(found.peaks.begin(), found.peaks.end(),
                                        [](Bytes peak) { return peak > Bytes(0); });
    EXPECT_GE(measured, 18);
    for (const Bytes peak : found.peaks) EXPECT_LE(peak, report.budget->budget) << report;
    // Some steps have more rows than the recorded one, and nothing else goes wrong.
    EXPECT_EQ(report.fallbacks.size(), times_left(report) > 0 ? 1U : 0U) << report;
    EXPECT_GT(sum_of(times_left(report)), 0);
  }
}

/// Twice the rows and more: a rank that gets them has no plan for that, and goes on.
TEST(ExpertBudget, StepsLargerThanAnyPlannedAreCountedAndTheNextOnesFitAgain) {
  std::vector<std::int64_t> lengths(16, 32);
  lengths[8] = 0;
  Session session(with_budget());
  const Outcome found = train({}, lengths, &session);
  const Outcome wanted = train({}, lengths, nullptr);
  EXPECT_EQ(count_different(found.values, wanted.values), 0);
  const SessionReport report = session.report();
  EXPECT_GT(sum_of(times_left(report)), 0);
  EXPECT_LE(report.budget->over_budget_steps, 1U) << report;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (i == 8) continue;
    EXPECT_LE(found.peaks[i], report.budget->budget) << i << report;
  }
  EXPECT_EQ(report.budget->problem, "");
}

TEST(ExpertBudget, SequencesLongerThanRecordedHaveTheSameBits) {
  const std::vector<std::int64_t> lengths{20, 20, 20, 20, 20, 32, 20, 24, 20, 32, 20};
  Session session(with_budget());
  const Outcome found = train({}, lengths, &session);
  const Outcome wanted = train({}, lengths, nullptr);
  EXPECT_EQ(count_different(found.values, wanted.values), 0);
  EXPECT_GT(times_left(session.report()), 0U) << session.report();
}

}  // namespace
}  // namespace spillway
