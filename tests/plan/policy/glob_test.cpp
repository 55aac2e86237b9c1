#include "plan/policy/glob.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

struct GlobCase {
  const char* pattern;
  const char* text;
  bool matches;
};

TEST(Glob, TakesStarsForAnyTextAndQuestionMarksForOneCharacter) {
  for (const GlobCase& each :
       {GlobCase{"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "layers.3.mlp", true},
        {"aten::silu", "aten::silu", true},
        {"aten::silu", "aten::silu_", false},
        {"aten::silu*", "aten::silu_", true},
        {"*scaled_dot_product*", "aten::_scaled_dot_product_flash_attention", true},
        {"*scaled_dot_product*", "aten::scaled_dot_produc", false},
        {"layers.?.mlp", "layers.3.mlp", true},
        {"layers.?.mlp", "layers.13.mlp", false},
        {"layers.*.mlp", "layers.3.attention.mlp", true},
        {"a*b*c", "axxbyybzzc", true},
        {"a*b*c", "axxbyybzz", false},
        {"**a**", "bab", true},
        {"*aab", "aaaaaaaab", true},
        {"?", "", false},
        {"*?", "x", true}}) {
    EXPECT_EQ(glob_matches(each.pattern, each.text), each.matches)
        << each.pattern << " / " << each.text;
  }
}

TEST(Glob, OfAScopeAlsoMeansWhatIsInside) {
  for (const GlobCase& each : {GlobCase{"layers.*.mlp", "layers.3.mlp", true},
                               {"layers.*.mlp", "layers.3.mlp.fc1", true},
                               {"layers.*.mlp", "layers.3.mlp_norm", false},
                               {"layers.*.mlp", "layers.3", false},
                               {"layers.*.mlp.*", "layers.3.mlp", false},
                               {"layers.*.mlp.*", "layers.3.mlp.fc1", true},
                               {"layers", "layers.3.mlp.fc1", true},
                               {"layer", "layers.3", false},
                               {"*.self_attn", "model.layers.3.self_attn.q_proj", true},
                               {"", "", true},
                               {"", "layers", false},
                               {"*", "", true},
                               {"x", "", false}}) {
    EXPECT_EQ(scope_matches(each.pattern, each.text), each.matches)
        << each.pattern << " / " << each.text;
  }
}

TEST(Glob, OfAScopeWithADotAtItsEndMeansThatScopeAlone) {
  for (const GlobCase& each : {GlobCase{"layers.*.mlp.", "layers.3.mlp", true},
                               {"layers.*.mlp.", "layers.3.mlp.fc1", false},
                               {"*.", "layers.3", true},
                               {".", "", true},
                               {".", "layers", false}}) {
    EXPECT_EQ(scope_matches(each.pattern, each.text), each.matches)
        << each.pattern << " / " << each.text;
  }
}

TEST(Glob, AnEmptyListOfPatternsMatchesEverything) {
  EXPECT_TRUE(any_glob_matches({}, "aten::mm"));
  EXPECT_TRUE(any_scope_matches({}, ""));
  EXPECT_TRUE(any_glob_matches({"aten::add", "aten::m?"}, "aten::mm"));
  EXPECT_FALSE(any_glob_matches({"aten::add"}, "aten::mm"));
}

}  // namespace
}  // namespace spillway
