#include <string>

#include <gtest/gtest.h>

#include "torch/support/training.hpp"
#include "torch/support/weight_program.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::difference_of;

/// Saves eight buffers of 16 MiB.
at::Tensor large_program(const at::Tensor& weight, int /*step*/) {
  at::Tensor x = weight.repeat({256, 4});
  for (int i = 0; i < 8; ++i) x = (x * 0.5).sin();
  return x.sum();
}

SessionOptions with_memory(const std::string& rules) {
  SessionOptions options = testing::with_rules(rules);
  options.host = 256_MiB;
  return options;
}

TEST(SessionHostMemory, IsGivenBackOnceThePlanHasShownHowMuchItNeeds) {
  Session session(with_memory(""));
  EXPECT_EQ(difference_of(large_program, session, 3), 0);
  EXPECT_GE(session.report().host_pinned, 128_MiB) << "the recording step offloads everything";
  EXPECT_EQ(difference_of(large_program, session, 4), 0);
  EXPECT_EQ(session.report().host_pinned, 0_B) << session.report();
  EXPECT_EQ(session.report().host_problem, "");
  Rules rules;
  rules.rules.emplace_back().action.kind = ActionKind::kOffload;
  session.use_plan(make_plan(*session.profile(), rules));
  EXPECT_EQ(difference_of(large_program, session, 4), 0);
  EXPECT_GE(session.report().host_pinned, 64_MiB) << session.report();
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
}

TEST(SessionHostMemory, StaysWherePlansNeedMostOfIt) {
  Session session(with_memory("[[rule]]\naction = \"offload\"\n"));
  EXPECT_EQ(difference_of(large_program, session, 1), 0);
  const Bytes recorded = session.report().host_pinned;
  EXPECT_EQ(difference_of(large_program, session, 6), 0);
  EXPECT_FALSE(session.report().bytes_out == 0_B) << session.report();
  EXPECT_EQ(session.report().host_pinned, recorded);
}

TEST(SessionHostMemory, DoesNotComeAndGoWhereItIsNeededAgainAndAgain) {
  Session session(with_memory(""));
  EXPECT_EQ(difference_of(large_program, session, 6), 0);
  EXPECT_EQ(session.report().host_pinned, 0_B) << session.report();
  for (int i = 0; i < 2; ++i) {
    session.record_next_step();
    EXPECT_EQ(difference_of(large_program, session, 6), 0);
    EXPECT_GE(session.report().host_pinned, 128_MiB) << i;
  }
}

TEST(SessionHostMemory, ThatWasAskedForInAdvanceStays) {
  SessionOptions options = with_memory("");
  options.prepare = 48_MiB;
  Session session(std::move(options));
  EXPECT_EQ(difference_of(large_program, session, 8), 0);
  EXPECT_LE(session.report().host_pinned, 64_MiB) << session.report();
  EXPECT_GE(session.report().host_pinned, 48_MiB);
}

}  // namespace
}  // namespace spillway
