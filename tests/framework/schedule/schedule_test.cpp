#include "spillway/schedule/schedule.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "spillway/schedule/schedule_check.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using ::spillway::testing::error_text;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Lt;

constexpr auto kOneForwardOneBackward = ScheduleKind::kOneForwardOneBackward;
constexpr auto kGpipe = ScheduleKind::kGpipe;

std::vector<std::vector<PipelineAction>> all_ranks(ScheduleKind kind, int stages, int chunks,
                                                   int micro_batches) {
  std::vector<std::vector<PipelineAction>> ranks;
  for (int stage = 0; stage < stages; ++stage) {
    ranks.push_back(make_schedule(kind, {stage, stages, chunks, micro_batches}));
  }
  return ranks;
}

/// "F0.1 B0.1": chunk and micro-batch of each pass.
std::string text_of(const std::vector<PipelineAction>& actions) {
  std::string text;
  for (const PassStep& pass : passes_of(actions)) {
    text += std::string(text.empty() ? "" : " ") + (pass.backward ? "B" : "F") +
            std::to_string(pass.chunk) + "." + std::to_string(pass.micro_batch);
  }
  return text;
}

template <typename F>
void for_all_shapes(F&& body) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      for (int micro_batches = 1; micro_batches <= 20; ++micro_batches) {
        SCOPED_TRACE(::testing::Message() << stages << " stages, " << chunks << " chunks, "
                                          << micro_batches << " micro-batches");
        body(stages, chunks, micro_batches);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(PipelineSchedule, RunsOneForwardOneBackwardAfterAWarmUp) {
  EXPECT_EQ(text_of(make_schedule(kOneForwardOneBackward, {0, 3, 1, 4})),
            "F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3");
  EXPECT_EQ(text_of(make_schedule(kOneForwardOneBackward, {1, 3, 1, 4})),
            "F0.0 F0.1 B0.0 F0.2 B0.1 F0.3 B0.2 B0.3");
  EXPECT_EQ(text_of(make_schedule(kOneForwardOneBackward, {2, 3, 1, 4})),
            "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3");
}

TEST(PipelineSchedule, InterleavesChunksInGroupsOfMicroBatches) {
  EXPECT_EQ(text_of(make_schedule(kOneForwardOneBackward, {0, 2, 2, 4})),
            "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3");
  EXPECT_EQ(text_of(make_schedule(kOneForwardOneBackward, {1, 2, 2, 4})),
            "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3");
}

TEST(PipelineSchedule, LeavesOutMicroBatchesThatFillNoGroup) {
  EXPECT_EQ(text_of(make_schedule(kOneForwardOneBackward, {1, 2, 2, 3})),
            "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 B0.1 F1.2 B1.2 B0.2");
}

TEST(PipelineSchedule, RunsAllForwardsFirstInGpipe) {
  EXPECT_EQ(text_of(make_schedule(kGpipe, {1, 4, 1, 2})), "F0.0 F0.1 B0.0 B0.1");
  EXPECT_EQ(text_of(make_schedule(kGpipe, {0, 2, 2, 2})),
            "F0.0 F0.1 F1.0 F1.1 B1.0 B1.1 B0.0 B0.1");
}

TEST(PipelineSchedule, PutsReceivesBeforeTheirUseAndSendsBehindTheirMaking) {
  using enum PipelineActionKind;
  EXPECT_THAT(
      make_schedule(kOneForwardOneBackward, {1, 3, 1, 1}),
      ElementsAre(PipelineAction{kReceiveActivation, 0, 0, 0, 0}, PipelineAction{kForward, 0, 0},
                  PipelineAction{kSendActivation, 0, 0, 2, 0},
                  PipelineAction{kReceiveGradient, 0, 0, 2, 1}, PipelineAction{kBackward, 0, 0},
                  PipelineAction{kSendGradient, 0, 0, 0, 1}));
}

TEST(PipelineSchedule, GoesRoundFromTheLastStageToTheFirst) {
  using enum PipelineActionKind;
  const auto first = make_schedule(kGpipe, {0, 3, 2, 1});
  const auto last = make_schedule(kGpipe, {2, 3, 2, 1});
  EXPECT_THAT(first, ::testing::Contains(PipelineAction{kReceiveActivation, 1, 0, 2, 0}));
  EXPECT_THAT(last, ::testing::Contains(PipelineAction{kSendActivation, 0, 0, 0, 0}));
  EXPECT_THAT(first, ::testing::Contains(PipelineAction{kSendGradient, 1, 0, 2, 3}));
  EXPECT_THAT(last, ::testing::Contains(PipelineAction{kReceiveGradient, 0, 0, 0, 3}));
}

TEST(PipelineSchedule, HasNoMessagesOnOneStage) {
  EXPECT_EQ(make_schedule(kOneForwardOneBackward, {0, 1, 3, 5}).size(), 3U * 5U * 2U);
}

TEST(PipelineSchedule, FitsTogetherInEveryShape) {
  for (const ScheduleKind kind : {kOneForwardOneBackward, kGpipe}) {
    for_all_shapes([&](int stages, int chunks, int micro_batches) {
      EXPECT_NO_THROW(
          check_schedule(all_ranks(kind, stages, chunks, micro_batches), chunks, micro_batches));
    });
  }
}

TEST(PipelineSchedule, HasAsManyPassesInFlightAsTheLiteratureSays) {
  for_all_shapes([](int stages, int chunks, int micro_batches) {
    const auto facts = check_schedule(
        all_ranks(kOneForwardOneBackward, stages, chunks, micro_batches), chunks, micro_batches);
    const int passes = micro_batches * chunks;
    for (int stage = 0; stage < stages; ++stage) {
      const int behind = stages - 1 - stage;
      const int warm_up =
          std::min(chunks == 1 ? behind : 2 * behind + (chunks - 1) * stages, passes);
      const int wanted = std::min(warm_up + 1, passes);
      const int found = facts.peak_passes_in_flight[static_cast<std::size_t>(stage)];
      if (chunks == 1 || micro_batches % stages == 0) {
        EXPECT_EQ(found, wanted) << "stage " << stage;
      } else {
        EXPECT_LE(found, wanted) << "stage " << stage;
      }
    }
  });
}

TEST(PipelineSchedule, HasEveryPassInFlightInGpipe) {
  for_all_shapes([](int stages, int chunks, int micro_batches) {
    const auto facts =
        check_schedule(all_ranks(kGpipe, stages, chunks, micro_batches), chunks, micro_batches);
    EXPECT_THAT(facts.peak_passes_in_flight, Each(micro_batches * chunks));
  });
}

TEST(PipelineSchedule, NeedsOneReceivePostedAheadIfSendsBlock) {
  for_all_shapes([](int stages, int chunks, int micro_batches) {
    const auto facts = check_schedule(
        all_ranks(kOneForwardOneBackward, stages, chunks, micro_batches), chunks, micro_batches);
    EXPECT_EQ(facts.receives_ahead, stages > 1 && micro_batches > 1 ? 1 : 0);
  });
}

TEST(PipelineSchedule, NeedsMoreReceivesPostedAheadTheLongerTheRoundOfGpipe) {
  for_all_shapes([](int stages, int chunks, int micro_batches) {
    const auto facts =
        check_schedule(all_ranks(kGpipe, stages, chunks, micro_batches), chunks, micro_batches);
    EXPECT_LT(facts.receives_ahead, micro_batches);
    if (stages == 1 || chunks == 1) {
      EXPECT_TRUE(facts.rendezvous_safe());
    }
  });
}

TEST(PipelineSchedule, TagsAreSmall) {
  for (const PipelineAction& action : make_schedule(kOneForwardOneBackward, {1, 4, 3, 9})) {
    EXPECT_THAT(action.tag, AllOf(::testing::Ge(0), Lt(2 * 3 * 9)));
  }
}

TEST(PipelineSchedule, RefusesWrongNumbers) {
  const auto problem = [](const PipelineRank& rank) {
    return error_text<InvalidArgument>([&] { (void)make_schedule(kGpipe, rank); });
  };
  EXPECT_EQ(problem({0, 0, 1, 1}),
            "[pipeline schedule] a pipeline needs at least one stage, found 0");
  EXPECT_THAT(problem({0, 1, 0, 1}), HasSubstr("at least one chunk a stage, found 0"));
  EXPECT_THAT(problem({0, 1, 1, -2}), HasSubstr("at least one micro-batch, found -2"));
  EXPECT_THAT(problem({4, 4, 1, 1}),
              HasSubstr("there is no stage 4 among 4; stages count from 0 to 3"));
  EXPECT_THAT(problem({-1, 4, 1, 1}), HasSubstr("there is no stage -1"));
}

TEST(PipelineSchedule, IsCalledByName) {
  EXPECT_EQ(parse_schedule_kind("1f1b"), kOneForwardOneBackward);
  EXPECT_EQ(parse_schedule_kind("gpipe"), kGpipe);
  EXPECT_EQ(error_text<InvalidArgument>([] { (void)parse_schedule_kind("gpip"); }),
            "[pipeline schedule] there is no schedule \"gpip\"; did you mean \"gpipe\"?");
}

}  // namespace
}  // namespace spillway
