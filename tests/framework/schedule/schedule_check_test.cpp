#include "spillway/schedule/schedule_check.hpp"

#include <algorithm>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using ::spillway::testing::error_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum PipelineActionKind;

using Ranks = std::vector<std::vector<PipelineAction>>;

Ranks valid(ScheduleKind kind, int stages, int chunks, int micro_batches) {
  Ranks ranks;
  for (int stage = 0; stage < stages; ++stage) {
    ranks.push_back(make_schedule(kind, {stage, stages, chunks, micro_batches}));
  }
  return ranks;
}

Ranks two_stages() { return valid(ScheduleKind::kOneForwardOneBackward, 2, 1, 2); }

std::string problem_of(const Ranks& ranks, int chunks = 1, int micro_batches = 2) {
  return error_text<InvalidArgument>([&] { check_schedule(ranks, chunks, micro_batches); });
}

std::vector<PipelineAction>::iterator find(std::vector<PipelineAction>& actions,
                                           PipelineActionKind kind, int micro_batch) {
  return std::find_if(actions.begin(), actions.end(), [&](const PipelineAction& action) {
    return action.kind == kind && action.micro_batch == micro_batch;
  });
}

void exchange(std::vector<PipelineAction>& actions, PipelineActionKind kind, int one, int other) {
  std::iter_swap(find(actions, kind, one), find(actions, kind, other));
}

TEST(ScheduleCheck, CountsPassesInFlight) {
  const ScheduleFacts facts = check_schedule(two_stages(), 1, 2);
  EXPECT_THAT(facts.peak_passes_in_flight, ElementsAre(2, 1));
}

TEST(ScheduleCheck, SaysThatBlockingSendsDeadlockOneForwardOneBackward) {
  const ScheduleFacts facts = check_schedule(two_stages(), 1, 2);
  EXPECT_FALSE(facts.rendezvous_safe());
  EXPECT_EQ(facts.receives_ahead, 1);
}

TEST(ScheduleCheck, SaysThatBlockingSendsAreSafeInGpipeWithoutARound) {
  EXPECT_TRUE(check_schedule(valid(ScheduleKind::kGpipe, 4, 1, 6), 1, 6).rendezvous_safe());
  EXPECT_TRUE(
      check_schedule(valid(ScheduleKind::kOneForwardOneBackward, 3, 1, 1), 1, 1).rendezvous_safe());
}

TEST(ScheduleCheck, FindsPassesThatAreMissingOrComeTwice) {
  Ranks ranks = two_stages();
  ranks[1].erase(find(ranks[1], kBackward, 1), ranks[1].end());
  EXPECT_EQ(problem_of(ranks),
            "[pipeline schedule check] on stage 1, \"backward of chunk 0, micro-batch 1\" is "
            "missing");
  ranks = two_stages();
  ranks[0].push_back({kForward, 0, 1});
  EXPECT_THAT(problem_of(ranks), HasSubstr("\"forward of chunk 0, micro-batch 1\" comes twice"));
  ranks = two_stages();
  ranks[0].push_back({kForward, 0, 2});
  EXPECT_THAT(problem_of(ranks), HasSubstr("does not exist: there are 1 chunks and 2 micro-b"));
}

TEST(ScheduleCheck, FindsWhatComesTooEarly) {
  Ranks ranks = two_stages();
  std::iter_swap(find(ranks[1], kReceiveActivation, 0), find(ranks[1], kForward, 0));
  EXPECT_THAT(problem_of(ranks), HasSubstr("\"forward of chunk 0, micro-batch 0\" comes before "
                                           "\"receive activation for chunk 0, micro-batch 0 from "
                                           "stage 0 (tag 0)\", which it needs"));
  ranks = two_stages();
  std::iter_swap(find(ranks[1], kForward, 0), find(ranks[1], kBackward, 0));
  EXPECT_THAT(problem_of(ranks), HasSubstr("on stage 1, \"backward of chunk 0, micro-batch 0\" "
                                           "comes before \"forward of chunk 0, micro-batch 0\""));
  ranks = two_stages();
  std::iter_swap(find(ranks[0], kForward, 0), find(ranks[0], kSendActivation, 0));
  EXPECT_THAT(problem_of(ranks), HasSubstr("\"send activation of chunk 0, micro-batch 0 to stage 1 "
                                           "(tag 0)\" comes before \"forward"));
}

TEST(ScheduleCheck, FindsChunksOfOneStageOutOfOrder) {
  Ranks ranks = valid(ScheduleKind::kGpipe, 1, 2, 1);
  std::swap(ranks[0][0], ranks[0][1]);
  EXPECT_THAT(problem_of(ranks, 2, 1), HasSubstr("\"forward of chunk 1, micro-batch 0\" comes "
                                                 "before \"forward of chunk 0, micro-batch 0\""));
  ranks = valid(ScheduleKind::kGpipe, 1, 2, 1);
  std::swap(ranks[0][2], ranks[0][3]);
  EXPECT_THAT(problem_of(ranks, 2, 1), HasSubstr("\"backward of chunk 0, micro-batch 0\" comes "
                                                 "before \"backward of chunk 1"));
}

TEST(ScheduleCheck, FindsMessagesThatAreMissingOrGoElsewhere) {
  Ranks ranks = two_stages();
  ranks[0].erase(find(ranks[0], kSendActivation, 1));
  EXPECT_THAT(problem_of(ranks), HasSubstr("\"send activation of chunk 0, micro-batch 1 to stage 1 "
                                           "(tag 2)\" is missing"));
  ranks = two_stages();
  find(ranks[0], kSendActivation, 1)->peer = 0;
  EXPECT_THAT(problem_of(ranks), HasSubstr("has the wrong peer; stage 1 was wanted"));
  ranks = two_stages();
  ranks[0].push_back({kReceiveActivation, 0, 0, 1, 0});
  EXPECT_THAT(problem_of(ranks), HasSubstr("has no stage at the other end"));
}

TEST(ScheduleCheck, FindsTagsThatDoNotMatch) {
  Ranks ranks = two_stages();
  find(ranks[1], kReceiveActivation, 1)->tag = 7;
  EXPECT_THAT(problem_of(ranks), HasSubstr("(tag 7)\" comes when stage 0 sends tag 2"));
  ranks = two_stages();
  find(ranks[0], kSendActivation, 1)->tag = 0;
  find(ranks[1], kReceiveActivation, 1)->tag = 0;
  EXPECT_THAT(problem_of(ranks), HasSubstr("has the tag of another message to that stage"));
}

TEST(ScheduleCheck, FindsReceivesInAnotherOrderThanSends) {
  Ranks ranks = valid(ScheduleKind::kGpipe, 2, 1, 2);
  exchange(ranks[0], kForward, 0, 1);
  exchange(ranks[0], kSendActivation, 0, 1);
  EXPECT_THAT(problem_of(ranks), HasSubstr("on stage 1, \"receive activation for chunk 0, "
                                           "micro-batch 0 from stage 0 (tag 0)\" comes when stage "
                                           "0 sends tag 2; receive in the order of the sends"));
}

TEST(ScheduleCheck, FindsStagesThatWaitForOneAnother) {
  // Stage 0 waits for the first gradient before it sends what stage 1 needs to compute it.
  Ranks ranks = valid(ScheduleKind::kGpipe, 2, 1, 2);
  ranks[0] = {{kForward, 0, 0},
              {kSendActivation, 0, 0, 1, 0},
              {kReceiveGradient, 0, 0, 1, 1},
              {kBackward, 0, 0},
              {kForward, 0, 1},
              {kSendActivation, 0, 1, 1, 2},
              {kReceiveGradient, 0, 1, 1, 3},
              {kBackward, 0, 1}};
  EXPECT_THAT(problem_of(ranks),
              HasSubstr("on stage 0, \"receive gradient for chunk 0, micro-batch 0 from stage 1 "
                        "(tag 1)\" waits for ever"));
}

TEST(ScheduleCheck, RefusesNothingToCheck) {
  EXPECT_THAT(problem_of({}), HasSubstr("at least one stage, chunk and micro-batch is needed"));
}

}  // namespace
}  // namespace spillway
