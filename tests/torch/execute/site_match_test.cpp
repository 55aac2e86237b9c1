#include "torch/execute/site_match.hpp"

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway {
namespace {

using ::testing::ElementsAre;

struct Site {
  Signature signature = 0;
  at::ScalarType dtype = at::kFloat;
};

/// A pass of a chunk with these sites, each of a matrix in a buffer of its own.
Pass pass_with(const std::vector<Site>& sites) {
  auto layout = std::make_shared<ChunkLayout>();
  for (std::size_t i = 0; i < sites.size(); ++i) {
    layout->sites.push_back({static_cast<int>(i), sites[i].dtype, 2, sites[i].signature});
    if (sites[i].signature != 0) layout->sites_of[sites[i].signature].push_back(i);
  }
  Pass pass;
  pass.layout = std::move(layout);
  return pass;
}

at::Tensor matrix(at::ScalarType dtype = at::kFloat) { return at::empty({2, 2}, dtype); }

/// Saves a tensor with the signature; returns its site, or -1.
int save(Pass& pass, Signature signature, const at::Tensor& tensor = matrix(),
         bool movable = true) {
  const std::optional<std::size_t> site = find_site(pass, tensor, signature, movable);
  if (!site) return -1;
  use_site(pass, *site, signature);
  return static_cast<int>(*site);
}

TEST(SiteMatch, TakesOneSiteAfterAnother) {
  Pass pass = pass_with({{7}, {8}, {9}});
  EXPECT_EQ(save(pass, 7), 0);
  EXPECT_EQ(save(pass, 8), 1);
  EXPECT_FALSE(pass.as_profiled());
  EXPECT_EQ(save(pass, 9), 2);
  EXPECT_TRUE(pass.as_profiled());
  EXPECT_EQ(save(pass, 9), -1);
}

TEST(SiteMatch, FindsASignatureWhereverItIsSaved) {
  Pass pass = pass_with({{7}, {8}, {7}, {9}});
  EXPECT_EQ(save(pass, 9), 3);
  EXPECT_EQ(pass.match, Match::kInAnotherOrder);
  EXPECT_EQ(save(pass, 7), 0);
  EXPECT_EQ(save(pass, 7), 2);
  EXPECT_EQ(save(pass, 7), -1) << "both are taken";
  EXPECT_EQ(save(pass, 5), -1);
  EXPECT_THAT(skipped_by(pass), ElementsAre(false, true, false, false));
}

TEST(SiteMatch, GoesByTypesWhereThereAreNoSignatures) {
  Pass pass = pass_with({{0}, {0, at::kHalf}, {0}});
  EXPECT_EQ(save(pass, 0, matrix(at::kHalf)), 1);
  EXPECT_EQ(save(pass, 0), 2);
  EXPECT_EQ(save(pass, 0), 0);
  EXPECT_EQ(save(pass, 0, at::empty({2})), -1);
}

TEST(SiteMatch, LooksForWhatIsNotMovableAtTheNextSiteOnlyUnlessItIsSigned) {
  Pass pass = pass_with({{0, at::kHalf}, {0}});
  EXPECT_EQ(save(pass, 0, matrix(), /*movable=*/false), -1);
  Pass signed_pass = pass_with({{7}, {8}});
  EXPECT_EQ(save(signed_pass, 8, matrix(), /*movable=*/false), 1);
}

TEST(SkippedSites, AreGoneAfterSixteenSteps) {
  SkippedSites skipped;
  for (int i = 0; i < 15; ++i) EXPECT_FALSE(skipped.are_gone(0, {false, true, true}));
  EXPECT_TRUE(skipped.are_gone(0, {false, true, false})) << "one of them in all steps";
  skipped.forget(0);
  EXPECT_FALSE(skipped.are_gone(0, {false, true, false}));
}

TEST(SkippedSites, AreNotGoneWhereStepsSkipOthers) {
  SkippedSites skipped;
  for (int i = 0; i < 64; ++i) {
    EXPECT_FALSE(skipped.are_gone(0, {i % 3 == 0, i % 3 == 1, i % 3 == 2})) << i;
    EXPECT_FALSE(skipped.are_gone(1, {})) << "none of its passes says anything";
  }
}

TEST(SkippedSites, AreThoseOfAllPasses) {
  Pass first = pass_with({{7}, {8}, {9}});
  EXPECT_EQ(save(first, 7), 0);
  Pass second = pass_with({{7}, {8}, {9}});
  EXPECT_EQ(save(second, 8), 1);
  EXPECT_THAT(SkippedSites::in_all(SkippedSites::in_all({}, first), second),
              ElementsAre(false, false, true));
}

TEST(SiteMatch, GivesAPlanTheSignaturesThatAPassHasFound) {
  auto pass = std::make_shared<Pass>(pass_with({{0}, {0}}));
  EXPECT_EQ(save(*pass, 7), 0);
  Plan plan;
  plan.chunks.emplace_back().sites.kind = {0, 0};
  EXPECT_EQ(with_signatures_of_passes(plan, {pass}), std::nullopt) << "it has not saved all";
  EXPECT_EQ(save(*pass, 8), 1);
  const std::optional<Plan> learned = with_signatures_of_passes(plan, {pass});
  ASSERT_TRUE(learned.has_value());
  EXPECT_THAT(learned->chunks[0].sites.signature, ElementsAre(7U, 8U));
  EXPECT_EQ(with_signatures_of_passes(*learned, {pass}), std::nullopt) << "it has them";
}

}  // namespace
}  // namespace spillway
