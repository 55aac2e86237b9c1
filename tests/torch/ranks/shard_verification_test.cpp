#include "torch/ranks/shard_verification.hpp"

#include <set>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "torch/support/thread_ranks.hpp"

namespace spillway::shard_verification_test {
namespace {

using ::testing::IsEmpty;
using Key = ShardVerification::Key;
using State = ShardVerification::State;
using testing::ThreadRanks;

constexpr int kRanks = 3;

at::Tensor digest(std::int64_t value) { return at::full({}, value, at::kLong); }

TEST(ShardVerification, TrustsWhatIsEqualOnAllRanks) {
  ThreadRanks::run(kRanks, [](const std::shared_ptr<ShardGroup>& group) {
    ShardVerification verification;
    EXPECT_EQ(verification.state(), State::kWanted);
    verification.add({0, 1}, digest(5), 11);
    verification.add({0, 2}, digest(group->rank() == 2 ? 6 : 7), 12);
    EXPECT_EQ(verification.finish(*group), (std::set<Key>{{0, 2}}));
    EXPECT_EQ(verification.state(), State::kDone);
    EXPECT_EQ(verification.trust_in(11), Trust::kVerified);
    EXPECT_EQ(verification.trust_in(12), Trust::kMismatched);
    EXPECT_EQ(verification.state(), State::kDone);
  });
}

TEST(ShardVerification, TrustsWhatSharesASignatureTogetherOrNotAtAll) {
  ThreadRanks::run(kRanks, [](const std::shared_ptr<ShardGroup>& group) {
    ShardVerification verification;
    verification.add({0, 1}, digest(5), 11);
    verification.add({0, 2}, digest(group->rank()), 11);
    verification.add({1, 1}, digest(9), 12);
    EXPECT_EQ(verification.finish(*group), (std::set<Key>{{0, 1}, {0, 2}}));
    EXPECT_EQ(verification.trust_in(11), Trust::kMismatched);
    EXPECT_EQ(verification.trust_in(12), Trust::kVerified);
  });
}

TEST(ShardVerification, NeverTrustsAgainWhatDiffered) {
  ThreadRanks::run(kRanks, [](const std::shared_ptr<ShardGroup>& group) {
    ShardVerification verification;
    for (const bool equal : {false, true}) {
      verification.add({0, 1}, digest(equal ? 5 : group->rank()), 11);
      EXPECT_EQ(verification.finish(*group), (std::set<Key>{{0, 1}}));
      verification.clear();
    }
    EXPECT_EQ(verification.trust_in(11), Trust::kMismatched);
  });
}

TEST(ShardVerification, LearnsNothingWhereRanksSavedDifferentBuffers) {
  ThreadRanks::run(kRanks, [](const std::shared_ptr<ShardGroup>& group) {
    for (const bool another : {false, true}) {
      ShardVerification verification;
      verification.add({0, 1}, digest(5), 11);
      // One more, or one in place of another.
      if (!another && group->rank() == 1) verification.add({0, 2}, digest(6), 12);
      if (another) verification.add({0, group->rank() == 1 ? 3 : 2}, digest(6), 12);
      EXPECT_EQ(verification.finish(*group), std::nullopt);
      EXPECT_EQ(verification.state(), State::kWanted);
      EXPECT_EQ(verification.trust_in(11), Trust::kUnread);
    }
  });
}

TEST(ShardVerification, WantsToVerifyOnceForEachUnknownValue) {
  ThreadRanks::run(kRanks, [](const std::shared_ptr<ShardGroup>& group) {
    ShardVerification verification;
    EXPECT_EQ(verification.finish(*group), std::set<Key>());
    EXPECT_EQ(verification.state(), State::kDone);
    EXPECT_EQ(verification.trust_in(11), Trust::kUnread);
    EXPECT_EQ(verification.state(), State::kWanted);
    EXPECT_EQ(verification.finish(*group), std::set<Key>());
    EXPECT_EQ(verification.trust_in(11), Trust::kUnread);
    EXPECT_EQ(verification.state(), State::kDone) << "the plan does not shard it";
  });
}

TEST(ShardVerification, SaysForThePlannerWhatWasEqual) {
  Profile profile;
  profile.chunks.resize(1);
  for (int id = 0; id < 3; ++id) {
    BufferProfile buffer;
    buffer.id = id;
    profile.chunks[0].buffers.push_back(std::move(buffer));
  }
  ThreadRanks::run(kRanks, [&](const std::shared_ptr<ShardGroup>& group) {
    ShardVerification verification;
    EXPECT_THAT(verification.equal(profile), IsEmpty());
    verification.add({0, 0}, digest(5));
    verification.add({0, 1}, digest(group->rank()));
    EXPECT_TRUE(verification.compare_all(*group));
    EXPECT_EQ(verification.equal(profile), (std::vector<std::vector<bool>>{{true, false, false}}));
    verification.clear();
    verification.add({0, group->rank()}, digest(5));
    EXPECT_FALSE(verification.compare_all(*group));
    EXPECT_FALSE(verification.equal(profile).empty()) << "what was known stays known";
    verification.forget_equal();
    EXPECT_THAT(verification.equal(profile), IsEmpty());
  });
}

}  // namespace
}  // namespace spillway::shard_verification_test
