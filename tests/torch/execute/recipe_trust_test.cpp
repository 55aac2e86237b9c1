#include "torch/execute/recipe_trust.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr Signature kSoftmax = 1;
constexpr Signature kNorm = 2;

Verification::Failure failure(int buffer, bool own = true) {
  return {{0, buffer}, own, "it had other bits"};
}

TEST(RecipeTrust, IsWonByVerification) {
  RecipeTrust recipes;
  EXPECT_TRUE(recipes.ask(kSoftmax).first);
  EXPECT_FALSE(recipes.ask(kSoftmax).first);
  EXPECT_FALSE(recipes.any_compared());
  recipes.add({0, 3}, kSoftmax, {}, {});
  EXPECT_TRUE(recipes.any_compared());
  EXPECT_EQ(recipes.ask(kSoftmax).trust, Trust::kUnread);
  const RecipeTrust::Result result = recipes.note({}, {});
  EXPECT_THAT(result.demoted, IsEmpty());
  EXPECT_FALSE(result.again);
  EXPECT_EQ(recipes.ask(kSoftmax).trust, Trust::kVerified);
  EXPECT_FALSE(recipes.any_compared());
}

TEST(RecipeTrust, IsLostForGood) {
  RecipeTrust recipes;
  recipes.add({0, 3}, kSoftmax, {}, {});
  EXPECT_THAT(recipes.note({failure(3)}, {}).demoted,
              ElementsAre(Pair(RecipeTrust::Key{0, 3}, "it had other bits")));
  EXPECT_EQ(recipes.ask(kSoftmax).trust, Trust::kMismatched);
  recipes.add({0, 3}, kSoftmax, {}, {});
  EXPECT_THAT(recipes.note({}, {}).demoted,
              ElementsAre(Pair(RecipeTrust::Key{0, 3}, HasSubstr("another buffer"))))
      << "the same bits by chance";
  EXPECT_EQ(recipes.ask(kSoftmax).trust, Trust::kMismatched);
}

TEST(RecipeTrust, IsLostForGoodWithARoot) {
  RecipeTrust recipes;
  recipes.add({0, 3}, kSoftmax, {}, {});
  EXPECT_THAT(recipes.note({}, {}).demoted, IsEmpty());
  recipes.lose_root(kSoftmax);
  EXPECT_EQ(recipes.ask(kSoftmax).trust, Trust::kRootLost);
  recipes.add({0, 3}, kSoftmax, {}, {});
  EXPECT_THAT(recipes.note({}, {}).demoted, IsEmpty());
  EXPECT_EQ(recipes.ask(kSoftmax).trust, Trust::kRootLost) << "its root was there by chance";
}

TEST(RecipeTrust, IsLostByAllBuffersOfARecipe) {
  RecipeTrust recipes;
  recipes.add({0, 3}, kSoftmax, {}, {});
  recipes.add({0, 4}, kSoftmax, {}, {});
  recipes.add({0, 5}, kNorm, {}, {});
  EXPECT_THAT(recipes.note({failure(4)}, {}).demoted,
              ElementsAre(Pair(RecipeTrust::Key{0, 3}, HasSubstr("another buffer")),
                          Pair(RecipeTrust::Key{0, 4}, "it had other bits")));
  EXPECT_EQ(recipes.ask(kNorm).trust, Trust::kVerified);
}

TEST(RecipeTrust, IsLostByAllBuffersOfASiteSignature) {
  auto layout = std::make_shared<ChunkLayout>();
  for (const int buffer : {3, 4, 5}) {
    layout->sites.push_back({.buffer = buffer});
    layout->sites_of[buffer == 5 ? 8 : 7].push_back(layout->sites.size() - 1);
  }
  RecipeTrust recipes;
  recipes.add({0, 3}, kSoftmax, {}, {});
  EXPECT_THAT(recipes.note({failure(3)}, {{0, layout}}).demoted,
              ElementsAre(Pair(RecipeTrust::Key{0, 3}, "it had other bits"),
                          Pair(RecipeTrust::Key{0, 4}, HasSubstr("another buffer"))));
}

TEST(RecipeTrust, IsOpenWhereTheInputsOfARecipeMismatched) {
  RecipeTrust recipes;
  recipes.add({0, 3}, kSoftmax, {}, {});
  recipes.add({0, 4}, kNorm, {}, {});
  const RecipeTrust::Result result = recipes.note({failure(3), failure(4, /*own=*/false)}, {});
  EXPECT_THAT(result.demoted, ElementsAre(Pair(RecipeTrust::Key{0, 3}, "it had other bits")));
  EXPECT_TRUE(result.again);
  EXPECT_EQ(recipes.ask(kNorm).trust, Trust::kUnread);
}

TEST(RecipeTrust, IsNotWonByWhatIsForgotten) {
  RecipeTrust recipes;
  (void)recipes.ask(kSoftmax);
  recipes.add({0, 3}, kSoftmax, {}, {});
  recipes.forget_compared();
  EXPECT_THAT(recipes.note({}, {}).demoted, IsEmpty());
  EXPECT_EQ(recipes.ask(kSoftmax).trust, Trust::kUnread);
}

}  // namespace
}  // namespace spillway
