#include "torch/ranks/shard_agreement.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "torch/support/thread_ranks.hpp"

namespace spillway::shard_agreement_test {
namespace {

constexpr ShardVote kShards{.plan = 7, .prefetch_window = 100};
constexpr ShardVote kVerifies{.plan = 7, .verify = true, .prefetch_window = 100};
constexpr ShardVote kOtherPlan{.plan = 8, .prefetch_window = 100};
constexpr ShardVote kRecords{.prefetch_window = 100};
constexpr ShardVote kCompares{.prefetch_window = 100, .compare = true};

TEST(ShardAgreement, IsATable) {
  struct Row {
    std::vector<ShardVote> votes;
    ShardMode mode;
    bool same_plan;
  };
  const std::vector<Row> table = {
      {{kShards, kShards, kShards}, ShardMode::kSharding, true},
      {{kShards, kVerifies, kShards}, ShardMode::kVerifying, true},
      {{kVerifies, kVerifies}, ShardMode::kVerifying, true},
      {{kShards, kOtherPlan}, ShardMode::kNone, false},
      {{kVerifies, kOtherPlan}, ShardMode::kNone, false},
      {{kShards, kRecords}, ShardMode::kNone, false},
      {{kRecords, kShards}, ShardMode::kNone, false},
      {{kRecords, kRecords}, ShardMode::kNone, false},
      {{kCompares, kCompares}, ShardMode::kComparing, false},
      {{kCompares, kRecords}, ShardMode::kNone, false},
      {{kCompares, kShards}, ShardMode::kNone, false},
      {{kShards, kCompares}, ShardMode::kNone, false},
      {{kVerifies, kCompares}, ShardMode::kNone, false},
  };
  for (std::size_t i = 0; i < table.size(); ++i) {
    const ShardAgreement agreed = agreement_of(table[i].votes);
    EXPECT_EQ(agreed.mode, table[i].mode) << "row " << i << ": " << to_string(agreed.mode);
    EXPECT_EQ(agreed.same_plan, table[i].same_plan) << "row " << i;
  }
}

TEST(ShardAgreement, HasTheSmallestWindow) {
  EXPECT_EQ(agreement_of({{.plan = 7, .prefetch_window = 5}, {.plan = 7}}).prefetch_window, 0);
  EXPECT_EQ(agreement_of({{.prefetch_window = 5}, {.prefetch_window = 3}}).prefetch_window, 3);
}

TEST(ShardAgreement, IsTheSameOnAllRanks) {
  testing::ThreadRanks::run(3, [](const std::shared_ptr<ShardGroup>& group) {
    const ShardAgreement agreed = agree(
        *group, {.plan = 7, .verify = group->rank() == 1, .prefetch_window = 9 - group->rank()});
    EXPECT_EQ(agreed.mode, ShardMode::kVerifying);
    EXPECT_TRUE(agreed.same_plan);
    EXPECT_EQ(agreed.prefetch_window, 7);
  });
}

TEST(ShardAgreement, IsAnErrorOnAllRanksWhereOneHasGatheredOtherBuffers) {
  testing::ThreadRanks::run(3, [](const std::shared_ptr<ShardGroup>& group) {
    const auto vote = [&](std::uint64_t gathers) {
      (void)agree(*group, {.plan = 7, .gathers = gathers});
    };
    EXPECT_NO_THROW(vote(5));
    EXPECT_THAT(
        testing::error_text<VerificationError>([&] { vote(group->rank() == 2 ? 4 : 5); }),
        ::testing::HasSubstr("[shard] rank 2 of the shard group has gathered other buffers"));
    EXPECT_THROW(vote(group->rank() == 0 ? 4 : 5), VerificationError);
  });
}

}  // namespace
}  // namespace spillway::shard_agreement_test
