#include "spillway/core/nearest.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

const std::vector<std::string> kWords = {"keep", "offload", "recompute"};

TEST(NearestWord, TakesTheFewestChanges) {
  EXPECT_EQ(nearest_word("offlod", kWords), "offload");
  EXPECT_EQ(nearest_word("recomptue", kWords), "recompute");
  EXPECT_EQ(nearest_word("kep", kWords), "keep");
  EXPECT_EQ(nearest_word("keep", kWords), "keep");
}

TEST(NearestWord, IsNothingWhenAllAreFarOff) {
  EXPECT_EQ(nearest_word("xyzzyplugh", kWords), std::nullopt);
  EXPECT_EQ(nearest_word("keep", {}), std::nullopt);
}

TEST(NearestWord, IsTheFirstOfEquals) { EXPECT_EQ(nearest_word("w4", {"w1", "w2"}), "w1"); }

TEST(Suggestion, NamesTheNearestWordOrAll) {
  EXPECT_EQ(suggestion("offlod", kWords), "did you mean \"offload\"?");
  EXPECT_EQ(suggestion("xyzzyplugh", kWords), "there are: keep, offload, recompute");
}

}  // namespace
}  // namespace spillway
