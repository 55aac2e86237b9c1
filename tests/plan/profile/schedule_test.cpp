#include "spillway/plan/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

using ::testing::HasSubstr;

Profile profile_of_chunks(int chunks) {
  Profile profile;
  for (int i = 0; i < chunks; ++i) profile.chunks.emplace_back().chunk = i;
  return profile;
}

std::string problem_of(const PassSchedule& schedule, int chunks) {
  try {
    require_valid(schedule, profile_of_chunks(chunks));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "none";
}

TEST(Schedule, RunsBackwardInTheOppositeOrder) {
  EXPECT_EQ(one_pass(profile_of_chunks(2)),
            (PassSchedule{{0, 0, false}, {1, 0, false}, {1, 0, true}, {0, 0, true}}));
}

TEST(Schedule, GivesEachMicroBatchItsBackwardBeforeTheNextOne) {
  EXPECT_EQ(accumulate(profile_of_chunks(1), 2),
            (PassSchedule{{0, 0, false}, {0, 0, true}, {0, 1, false}, {0, 1, true}}));
}

TEST(Schedule, IsValidWithPassesInFlight) {
  EXPECT_EQ(problem_of({{0, 0, false}, {0, 1, false}, {0, 0, true}, {0, 1, true}}, 1), "none");
  EXPECT_EQ(problem_of(accumulate(profile_of_chunks(3), 4), 3), "none");
}

TEST(Schedule, IsValidByItselfWhateverTheProfileHas) {
  const PassSchedule schedule = {{0, 0, false}, {7, 0, false}, {7, 0, true}, {0, 0, true}};
  EXPECT_NO_THROW(require_valid(schedule));
  EXPECT_THROW(require_valid(PassSchedule{{7, 0, true}}), InvalidArgument);
  EXPECT_EQ(known_part(schedule, profile_of_chunks(1)),
            (PassSchedule{{0, 0, false}, {0, 0, true}}));
}

TEST(Schedule, IsRefusedWithTheStepThatIsWrong) {
  EXPECT_THAT(problem_of({{1, 0, false}, {1, 0, true}}, 1),
              HasSubstr("the forward of chunk 1 on micro-batch 0 is of a chunk that the profile "
                        "does not have"));
  EXPECT_THAT(problem_of({{0, 2, true}, {0, 2, false}}, 1),
              HasSubstr("the backward of chunk 0 on micro-batch 2 comes before its forward"));
  EXPECT_THAT(problem_of({{0, 0, false}, {0, 0, false}}, 1), HasSubstr("comes twice"));
  EXPECT_THAT(problem_of({{0, 0, false}, {0, 0, true}, {0, 0, true}}, 1), HasSubstr("comes twice"));
  EXPECT_THAT(problem_of({{0, 0, false}, {0, 0, true}, {0, 0, false}}, 1),
              HasSubstr("comes after its backward"));
  EXPECT_THAT(problem_of({{0, 0, false}}, 1), HasSubstr("has no backward"));
}

}  // namespace
}  // namespace spillway
