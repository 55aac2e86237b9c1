/// Sessions over models with experts: the same bits, whatever is done with what experts save.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "moe_training.hpp"

namespace spillway {
namespace {

using testing::count_different;
using ::testing::IsEmpty;
using testing::moe_model;
using testing::moe_rules;
using testing::moe_session;
using testing::MoeCase;
using testing::MoeTrained;
using testing::NamedRules;
using testing::train_moe;

const std::vector<std::int64_t> kEqual(5, 32);

MoeTrained train(const MoeCase& of, Session* session,
                 const std::vector<std::int64_t>& lengths = kEqual) {
  PipelineLayer model = moe_model(of);
  return train_moe(model, {}, session, lengths);
}

void expect_same_bits(const MoeCase& of, const std::vector<NamedRules>& all) {
  const MoeTrained wanted = train(of, nullptr);
  for (const auto& [name, rules] : all) {
    Session session(moe_session(rules));
    const MoeTrained found = train(of, &session);
    EXPECT_EQ(count_different(found.values, wanted.values), 0) << name;
    EXPECT_THAT(session.report().fallbacks, IsEmpty()) << name;
  }
}

TEST(MoeSession, HasTheSameBitsUnderEveryRule) { expect_same_bits({}, moe_rules()); }

TEST(MoeSession, HasTheSameBitsInEveryModelAndMode) {
  for (const MoeCase& of : {MoeCase{.capacity_factor = 1.0}, MoeCase{.model = "gpt"},
                            MoeCase{.model = "gpt", .capacity_factor = 1.0}}) {
    expect_same_bits(of, {moe_rules()[2]});
  }
}

TEST(MoeSession, HasTheSameBitsWithEveryOverlap) {
  for (const double factor : {0.0, 1.0}) {
    for (const MoeOverlap overlap : {MoeOverlap::kNone, MoeOverlap::kHalves}) {
      expect_same_bits({.capacity_factor = factor, .overlap = overlap},
                       {moe_rules()[2], moe_rules()[3], moe_rules()[4]});
    }
  }
}

TEST(MoeSession, DoesWhatRulesAskOfExperts) {
  Session session(moe_session(moe_rules()[0].second));
  (void)train({}, &session);
  EXPECT_GT(session.report().actions.at("offload").bytes.count(), 0U);
  Session recomputing(moe_session(moe_rules()[1].second));
  (void)train({}, &recomputing);
  EXPECT_GT(recomputing.report().bytes_recomputed.count(), 0U);
  EXPECT_THAT(recomputing.report().demoted, IsEmpty());
}

TEST(MoeSession, KeepsABudget) {
  const MoeTrained wanted = train({}, nullptr, std::vector<std::int64_t>(6, 32));
  SessionOptions options = moe_session("");
  options.budget = Budget::share(0.8);
  options.plan_in_background = false;
  Session session(std::move(options));
  const MoeTrained found = train({}, &session, std::vector<std::int64_t>(6, 32));
  EXPECT_EQ(count_different(found.values, wanted.values), 0);
  const SessionReport report = session.report();
  ASSERT_TRUE(report.budget.has_value());
  EXPECT_EQ(report.budget->problem, "");
  EXPECT_GT(report.budget->plans, 0U);
  EXPECT_LE(report.budget->predicted_peak, report.budget->budget);
}

/// Recorded with short sequences and little host memory: what does not fit stays on the device.
TEST(MoeSession, GoesOnWithStepsLargerThanPlanned) {
  const std::vector<std::int64_t> lengths{8, 8, 8, 32, 8, 32};
  const MoeTrained wanted = train({}, nullptr, lengths);
  const std::string offload = "[[rule]]\naction = 'offload'\n";
  Session small(moe_session(offload));
  (void)train({}, &small, {8, 8, 8});
  SessionOptions options = moe_session(offload);
  options.host = Bytes(small.report().host_peak.count() + 4096);
  Session session(std::move(options));
  const MoeTrained found = train({}, &session, lengths);
  EXPECT_EQ(count_different(found.values, wanted.values), 0);
  EXPECT_FALSE(session.report().fallbacks.empty());
  EXPECT_LE(session.report().host_peak.count(), small.report().host_peak.count() + 4096);
}

}  // namespace
}  // namespace spillway
