#include "plan/policy/fold.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

std::string folded(const std::vector<std::string>& scopes) {
  FoldedScope all = fold(scopes.front());
  for (const std::string& scope : scopes) {
    EXPECT_EQ(fold(scope).shape, all.shape);
    all.add(fold(scope));
  }
  return all.text();
}

TEST(FoldedScopes, ShowRunsOfNumbersAsRanges) {
  EXPECT_EQ(folded({"layers.0.mlp", "layers.2.mlp", "layers.1.mlp"}), "layers.0..2.mlp");
  EXPECT_EQ(folded({"layers.0.mlp", "layers.1.mlp", "layers.5.mlp"}), "layers.0..1,5.mlp");
  EXPECT_EQ(folded({"h.10"}), "h.10");
  EXPECT_EQ(folded({""}), "");
  EXPECT_EQ(folded({"lm_head"}), "lm_head");
}

TEST(FoldedScopes, FoldEveryNumber) {
  EXPECT_EQ(folded({"layers.0.experts.0.w1", "layers.1.experts.7.w1"}),
            "layers.0..1.experts.0,7.w1");
}

TEST(FoldedScopes, DoNotFoldNamesWithDigits) {
  EXPECT_NE(fold("mlp.fc1").shape, fold("mlp.fc2").shape);
  EXPECT_EQ(folded({"ln_1.#.12345678901"}), "ln_1.#.12345678901");
}

}  // namespace
}  // namespace spillway
